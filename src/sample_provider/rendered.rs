//! Rendered answers for reuse: with fixed token counts, requests that differ only in their prompts have the same answer.

use std::{borrow::Cow, collections::HashMap};

use parking_lot::Mutex;
use serde::{Deserialize, de::IgnoredAny};
use serde_json::Value;

use crate::{
    domain::wire::operation::{Operation, UpstreamOperation},
    sample_provider::{
        SampleSettings, TokenCounting, ask::PathTarget, chat::checks::check_request, gemini::GeminiFraming,
        performance::ScriptedResponse, script::MARK_OPEN,
    },
};

/// The maximum number of cached answers. Further answers are rendered each time.
const RENDERED_MAX: usize = 64;

/// The key of a rendered answer: everything that determines its bytes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct RenderedKey {
    operation: UpstreamOperation,
    chunking: GeminiFraming,
    model: String,
    stream: bool,
    streams_usage: bool,
}

/// The fields of a request that decide whether its answer can be reused. Other fields are skipped without building a tree.
#[derive(Deserialize)]
#[serde(bound(deserialize = "'de: 'a"))]
struct ReusableRequest<'a> {
    #[serde(default)]
    model: Option<Cow<'a, str>>,
    #[serde(default)]
    stream: bool,
    stream_options: Option<SampleStreamOptions>,
    messages: Option<IgnoredAny>,
    input: Option<IgnoredAny>,
    contents: Option<IgnoredAny>,
    // With one of the following fields, the answer depends on more than a [`RenderedKey`] contains.
    tools: Option<IgnoredAny>,
    thinking: Option<IgnoredAny>,
    reasoning: Option<IgnoredAny>,
    include: Option<IgnoredAny>,
    text: Option<IgnoredAny>,
    output_config: Option<IgnoredAny>,
    #[serde(rename = "generationConfig", alias = "generation_config")]
    generation_config: Option<IgnoredAny>,
    reasoning_effort: Option<IgnoredAny>,
    response_format: Option<IgnoredAny>,
}

/// The options for a stream of `chat/completions`.
#[derive(Deserialize)]
struct SampleStreamOptions {
    #[serde(default)]
    include_usage: bool,
}

/// Returns the key of a request whose answer can be reused; `None` if the answer cannot be reused.
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
        UpstreamOperation::Client(Operation::Messages) => head.messages,
        UpstreamOperation::Client(Operation::Responses) => head.input,
        UpstreamOperation::Client(Operation::GenerateContent | Operation::StreamGenerateContent) => head.contents,
        UpstreamOperation::Client(Operation::CountTokens | Operation::GeminiCountTokens) => None,
        UpstreamOperation::ChatCompletions => head.messages.filter(|_| is_accepted(body, settings)),
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
        head.reasoning_effort,
        head.response_format,
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
        streams_usage: head.stream_options.is_some_and(|options| options.include_usage),
    })
}

/// Whether a request of `chat/completions` has no fault. A reused answer must not hide one.
fn is_accepted(body: &[u8], settings: &SampleSettings) -> bool {
    serde_json::from_slice::<Value>(body).is_ok_and(|body| check_request(&body, &settings.script).is_ok())
}

/// The rendered answers that can be reused, by their keys.
#[derive(Debug, Default)]
pub(super) struct RenderedAnswers {
    answers: Mutex<HashMap<RenderedKey, ScriptedResponse>>,
}

impl RenderedAnswers {
    /// Returns the cached answer for `key`; `None` if there is none.
    pub(super) fn find(&self, key: &RenderedKey) -> Option<ScriptedResponse> {
        self.answers.lock().get(key).cloned()
    }

    /// Caches the answer `performance`, if there is room.
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
            operation: Operation::Messages.into(),
            model: None,
        }
    }

    fn chat_key(body: &str) -> Option<RenderedKey> {
        let chat = PathTarget {
            operation: UpstreamOperation::ChatCompletions,
            model: None,
        };
        reuse_key(&chat, GeminiFraming::Sse, body.as_bytes(), &settings())
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

    #[test]
    fn chat_answers_are_reused_by_their_usage_chunk_and_never_for_a_fault() {
        let reporting = r#"{"model":"m","stream":true,"stream_options":{"include_usage":true},
            "messages":[{"role":"user","content":"a"}]}"#;
        let silent = r#"{"model":"m","stream":true,"messages":[{"role":"user","content":"a"}]}"#;
        assert!(chat_key(reporting).is_some() && chat_key(silent).is_some());
        assert_ne!(chat_key(reporting), chat_key(silent));
        assert_eq!(chat_key(reporting), chat_key(&reporting.replace("\"a\"", "\"b\"")));
        for body in [
            silent.replace("user", "robot"),
            silent.replace("\"stream\":true", "\"n\":2"),
            silent.replace("\"stream\":true", "\"reasoning_effort\":\"low\""),
        ] {
            assert_eq!(chat_key(&body), None, "{body}");
        }
    }
}
