//! Caches rendered answers, so that the provider costs little compared with what a benchmark measures.

use std::borrow::Cow;
use std::collections::HashMap;

use parking_lot::Mutex;
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::gemini::GeminiFraming;
use super::mark::MARK_OPEN;
use super::path::PathTarget;
use super::performance::ScriptedResponse;
use super::settings::{SampleSettings, TokenCounting};
use crate::domain::wire::operation::Operation;

/// Maximum number of cached answers; further ones are rendered each time.
const RENDERED_MAX: usize = 64;

/// Everything that the rendered bytes depend on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct RenderedKey {
    operation: Operation,
    chunking: GeminiFraming,
    model: String,
    stream: bool,
}

/// The fields that decide whether an answer can be reused. The others are skipped without building a tree.
#[derive(Deserialize)]
#[serde(bound(deserialize = "'de: 'a"))]
struct ReusableRequest<'a> {
    #[serde(default)]
    model: Option<Cow<'a, str>>,
    #[serde(default)]
    stream: bool,
    messages: Option<IgnoredAny>,
    input: Option<IgnoredAny>,
    contents: Option<IgnoredAny>,
    // With one of these, the answer depends on more than the key.
    tools: Option<IgnoredAny>,
    thinking: Option<IgnoredAny>,
    reasoning: Option<IgnoredAny>,
    include: Option<IgnoredAny>,
    text: Option<IgnoredAny>,
    output_config: Option<IgnoredAny>,
    #[serde(rename = "generationConfig", alias = "generation_config")]
    generation_config: Option<IgnoredAny>,
}

/// The key of a request whose answer can be reused; `None` if it cannot.
pub(super) fn reuse_key(
    target: &PathTarget,
    chunking: GeminiFraming,
    body: &[u8],
    settings: &SampleSettings,
) -> Option<RenderedKey> {
    let fixed = settings.counting == TokenCounting::Fixed && settings.script.deltas.is_some();
    if !fixed || memchr::memmem::find(body, MARK_OPEN.as_bytes()).is_some() {
        return None;
    }
    let head: ReusableRequest<'_> = serde_json::from_slice(body).ok()?;
    let turns = match target.operation {
        Operation::Messages => head.messages,
        Operation::Responses => head.input,
        Operation::GenerateContent | Operation::StreamGenerateContent => head.contents,
        Operation::CountTokens | Operation::GeminiCountTokens => None,
    };
    turns?;
    let special = [
        head.tools,
        head.thinking,
        head.reasoning,
        head.include,
        head.text,
        head.output_config,
        head.generation_config,
    ];
    if special.iter().any(Option::is_some) {
        return None;
    }
    let model = target.model.clone().or_else(|| head.model.map(Cow::into_owned))?;
    Some(RenderedKey {
        operation: target.operation,
        chunking,
        model,
        stream: head.stream,
    })
}

#[derive(Debug, Default)]
pub(super) struct RenderedAnswers {
    answers: Mutex<HashMap<RenderedKey, ScriptedResponse>>,
}

impl RenderedAnswers {
    /// The answer for `key`.
    pub(super) fn find(&self, key: &RenderedKey) -> Option<ScriptedResponse> {
        self.answers.lock().get(key).cloned()
    }

    /// Caches `performance`, if there is room.
    pub(super) fn insert(&self, key: RenderedKey, performance: &ScriptedResponse) {
        let mut answers = self.answers.lock();
        if answers.len() < RENDERED_MAX {
            answers.insert(key, performance.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample_provider::script::SampleScript;

    fn settings() -> SampleSettings {
        let script = SampleScript {
            deltas: Some(5),
            ..SampleScript::default()
        };
        SampleSettings {
            script,
            counting: TokenCounting::Fixed,
            ..SampleSettings::default()
        }
    }

    fn messages() -> PathTarget {
        PathTarget {
            operation: Operation::Messages,
            model: None,
        }
    }

    #[test]
    fn plain_requests_of_fixed_answers_share_a_key() {
        let key = |body: &str| reuse_key(&messages(), GeminiFraming::Sse, body.as_bytes(), &settings());
        let first = key(r#"{"model":"m","stream":true,"messages":[{"content":"a"}]}"#);
        assert!(first.is_some());
        assert_eq!(
            first,
            key(r#"{"messages":[],"model":"m","stream":true,"max_tokens":5}"#)
        );
        assert_ne!(first, key(r#"{"messages":[],"model":"m"}"#));
    }

    #[test]
    fn marks_tools_and_thinking_are_looked_at_as_a_whole() {
        for body in [
            r#"{"model":"m","messages":["[[sample: deltas=3]]"]}"#,
            r#"{"model":"m","messages":[],"tools":[]}"#,
            r#"{"model":"m","messages":[],"thinking":{}}"#,
            r#"{"model":"m"}"#,
            "{",
        ] {
            assert_eq!(
                reuse_key(&messages(), GeminiFraming::Sse, body.as_bytes(), &settings()),
                None,
                "{body}"
            );
        }
        let counting = SampleSettings {
            counting: TokenCounting::Text,
            ..settings()
        };
        let body = br#"{"model":"m","messages":[]}"#;
        assert_eq!(reuse_key(&messages(), GeminiFraming::Sse, body, &counting), None);
    }
}
