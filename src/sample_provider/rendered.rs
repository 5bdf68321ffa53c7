//! Answers rendered once and reused, so that the provider costs little beside what is measured with it.

use std::borrow::Cow;
use std::collections::HashMap;

use parking_lot::Mutex;
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::gemini::Chunking;
use super::mark::MARK_OPEN;
use super::path::Target;
use super::performance::Performance;
use super::settings::{Counting, Settings};
use crate::domain::wire::operation::Operation;

/// Answers kept; further ones are rendered each time.
const RENDERED_MAX: usize = 64;

/// What the rendered bytes depend on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    operation: Operation,
    chunking: Chunking,
    model: String,
    stream: bool,
}

/// The fields that decide whether an answer can be reused; skipping the others builds no tree.
#[derive(Deserialize)]
#[serde(bound(deserialize = "'de: 'a"))]
struct Head<'a> {
    #[serde(default)]
    model: Option<Cow<'a, str>>,
    #[serde(default)]
    stream: bool,
    messages: Option<IgnoredAny>,
    input: Option<IgnoredAny>,
    contents: Option<IgnoredAny>,
    // With one of these the answer depends on more than the key.
    tools: Option<IgnoredAny>,
    thinking: Option<IgnoredAny>,
    reasoning: Option<IgnoredAny>,
    include: Option<IgnoredAny>,
    text: Option<IgnoredAny>,
    output_config: Option<IgnoredAny>,
    #[serde(rename = "generationConfig", alias = "generation_config")]
    generation_config: Option<IgnoredAny>,
}

/// The key of a request whose answer can be reused; `None` when it has to be looked at as a whole.
pub(super) fn key(target: &Target, chunking: Chunking, body: &[u8], settings: &Settings) -> Option<Key> {
    let fixed = settings.counting == Counting::Fixed && settings.script.deltas.is_some();
    if !fixed || memchr::memmem::find(body, MARK_OPEN.as_bytes()).is_some() {
        return None;
    }
    let head: Head<'_> = serde_json::from_slice(body).ok()?;
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
    Some(Key {
        operation: target.operation,
        chunking,
        model,
        stream: head.stream,
    })
}

#[derive(Debug, Default)]
pub(super) struct Rendered {
    answers: Mutex<HashMap<Key, Performance>>,
}

impl Rendered {
    /// The answer for `key`.
    pub(super) fn find(&self, key: &Key) -> Option<Performance> {
        self.answers.lock().get(key).cloned()
    }

    /// Keeps `performance`, as long as there is room.
    pub(super) fn keep(&self, key: Key, performance: &Performance) {
        let mut answers = self.answers.lock();
        if answers.len() < RENDERED_MAX {
            answers.insert(key, performance.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample_provider::script::Script;

    fn settings() -> Settings {
        let script = Script {
            deltas: Some(5),
            ..Script::default()
        };
        Settings {
            script,
            counting: Counting::Fixed,
            ..Settings::default()
        }
    }

    fn messages() -> Target {
        Target {
            operation: Operation::Messages,
            model: None,
        }
    }

    #[test]
    fn plain_requests_of_fixed_answers_share_a_key() {
        let key = |body: &str| key(&messages(), Chunking::Sse, body.as_bytes(), &settings());
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
                key(&messages(), Chunking::Sse, body.as_bytes(), &settings()),
                None,
                "{body}"
            );
        }
        let counting = Settings {
            counting: Counting::Text,
            ..settings()
        };
        let body = br#"{"model":"m","messages":[]}"#;
        assert_eq!(key(&messages(), Chunking::Sse, body, &counting), None);
    }
}
