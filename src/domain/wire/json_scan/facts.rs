//! Reads the facts that weir needs from the members of a request body: from the top level and just below it, and from the turns
//! of the conversation.

use crate::domain::wire::{
    json_scan::{
        ModelSpan, Scan, ScanError,
        lexer::{JsonToken, JsonTokenKind},
        string::{self, BodyKey},
    },
    protocol::Protocol,
};

/// A reader that collects the facts of a body. It gets every key and value in order. Only the first value after a key belongs to
/// the key.
#[derive(Debug, Default)]
pub(super) struct TopLevelReader {
    scan: Scan,
    /// The last top-level key, which determines the meaning of the members below it; `None` if it is unknown.
    last_top_level: Option<BodyKey>,
    /// The key of the next value, with the key's depth. The next value removes it, so that no later array element is taken for
    /// the key's value.
    next: Option<(usize, BodyKey)>,
    has_stream: bool,
    has_generation_config: bool,
}

impl TopLevelReader {
    pub(super) fn into_scan(self) -> Scan {
        self.scan
    }

    /// Returns the last top-level key; `None` if it is unknown.
    pub(super) fn last_top_level(&self) -> Option<BodyKey> {
        self.last_top_level
    }

    /// Whether the next value is the value of `model`.
    pub(super) fn is_model_next(&self) -> bool {
        self.next == Some((1, BodyKey::Model))
    }

    /// Handles a key of an object at `depth`, where 1 is the top level. The key begins at the byte offset `at`.
    pub(super) fn on_key(&mut self, depth: usize, key: Option<BodyKey>, at: usize) -> Result<(), ScanError> {
        if depth == 1 {
            self.last_top_level = key;
        }
        self.next = None;
        let Some(key) = key else { return Ok(()) };
        if let BodyKey::CacheControl | BodyKey::EncryptedContent | BodyKey::Signature = key {
            self.scan.is_account_bound = true;
        }
        let counts = match (depth, self.last_top_level) {
            (1, _) => {
                self.on_top_level_key(key, at)?;
                true
            }
            (2, Some(BodyKey::GenerationConfig)) => {
                matches!(
                    key,
                    BodyKey::MaxOutputTokens | BodyKey::MaxOutputTokensCamel | BodyKey::CandidateCount
                )
            }
            (2, Some(BodyKey::StreamOptions)) => key == BodyKey::IncludeUsage,
            // The object is an element of the array `fallbacks`.
            (3, Some(BodyKey::Fallbacks)) => key == BodyKey::MaxTokens,
            _ => false,
        };
        self.next = counts.then_some((depth, key));
        Ok(())
    }

    fn on_top_level_key(&mut self, key: BodyKey, at: usize) -> Result<(), ScanError> {
        match key {
            // The first `model` has set `scan.model`, because the scan would have failed if the value were not a string.
            BodyKey::Model if self.scan.model.is_some() => return Err(ScanError::ModelTwice { at }),
            BodyKey::Stream if self.has_stream => return Err(ScanError::StreamTwice { at }),
            BodyKey::Stream => self.has_stream = true,
            BodyKey::Contents => self.scan.has_contents = true,
            // It is unknown which of the two objects the provider uses.
            BodyKey::GenerationConfig if self.has_generation_config => {
                self.scan.output_limits.generation_config.add(None)
            }
            BodyKey::GenerationConfig => self.has_generation_config = true,
            _ => {}
        }
        Ok(())
    }

    /// Handles a value. For an object or array, handles its first byte.
    #[inline(always)]
    pub(super) fn on_value(&mut self, text: &[u8], value: JsonToken) -> Result<(), ScanError> {
        match self.next.take() {
            Some(field) => self.set_fact(field, text, value),
            None => Ok(()),
        }
    }

    fn set_fact(&mut self, field: (usize, BodyKey), text: &[u8], value: JsonToken) -> Result<(), ScanError> {
        let token = value.bytes_in(text);
        let truth = match value.kind {
            JsonTokenKind::True => Some(true),
            JsonTokenKind::False => Some(false),
            _ => None,
        };
        // The grammar is already checked. So a number that is not a `u64` has a sign, a fraction, an exponent, or too many
        // digits.
        let integer = match value.kind {
            JsonTokenKind::Number => std::str::from_utf8(token).ok().and_then(|token| token.parse().ok()),
            _ => None,
        };
        let Scan {
            output_max,
            output_limits: limits,
            ..
        } = &mut self.scan;
        match field {
            (1, BodyKey::Model) => {
                let text = (value.kind == JsonTokenKind::String)
                    .then(|| string::unescaped(token))
                    .flatten();
                let text = text.ok_or(ScanError::ModelNotString { at: value.start })?.into_owned();
                let value = value.start..value.end;
                self.scan.model = Some(ModelSpan { text, value });
            }
            (1, BodyKey::Stream) => self.scan.stream = truth.or(self.scan.stream),
            (1, BodyKey::Store) => self.scan.store = truth.or(self.scan.store),
            (1, BodyKey::MaxCompletionTokens) => *output_max = integer.or(*output_max),
            (1, BodyKey::MaxTokens) => {
                *output_max = integer.or(*output_max);
                limits.max_tokens.add(integer);
            }
            (3, BodyKey::MaxTokens) => limits.max_tokens.add(integer),
            (1, BodyKey::MaxOutputTokens) => {
                *output_max = integer.or(*output_max);
                limits.max_output_tokens.add(integer);
            }
            (2, BodyKey::MaxOutputTokens | BodyKey::MaxOutputTokensCamel) => {
                *output_max = integer.or(*output_max);
                limits.generation_config.add(integer);
            }
            (2, BodyKey::CandidateCount) => limits.candidates.add(integer),
            (1, BodyKey::Background) if truth != Some(false) => self.record_hidden_usage("background", value.kind),
            (2, BodyKey::IncludeUsage) if truth != Some(true) => {
                self.record_hidden_usage("stream_options.include_usage", value.kind);
            }
            (1, BodyKey::Thread | BodyKey::Diagnostics) => {
                self.scan.may_be_continued |= matches!(value.kind, JsonTokenKind::Object | JsonTokenKind::Array);
            }
            (1, BodyKey::PromptCache) if value.kind == JsonTokenKind::String => {
                self.scan.prompt_cache_key = Some(value.start..value.end);
            }
            _ => {}
        }
        Ok(())
    }

    /// Records a member that may hide the usage from weir. It is unknown which values make the provider hide the usage, so every
    /// value except `null` is recorded.
    fn record_hidden_usage(&mut self, place: &'static str, kind: JsonTokenKind) {
        if kind != JsonTokenKind::Null {
            self.scan.unseen_usage.get_or_insert(place);
        }
    }
}

/// The output limits in a request, one for each name that a limit can have. They limit the request's bill.
///
/// Only the name that belongs to the request's protocol has an effect, and only if its value is unambiguous. Otherwise a request
/// could contain a small number that limits its bill but not its answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OutputLimits {
    pub(super) max_tokens: OutputLimit,
    pub(super) max_output_tokens: OutputLimit,
    pub(super) generation_config: OutputLimit,
    pub(super) candidates: OutputLimit,
}

/// The output limit under one name.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum OutputLimit {
    #[default]
    Absent,
    /// The largest of the values, which are all positive integers.
    Number(u64),
    /// At least one value is something else: `null`, a string, a fraction, or zero, which some servers read as unlimited.
    Unclear,
}

impl OutputLimit {
    /// Adds the value of one member. `integer` is `None` if the value is not an integer.
    pub(super) fn add(&mut self, integer: Option<u64>) {
        *self = match (*self, integer) {
            (Self::Unclear, _) | (_, None | Some(0)) => Self::Unclear,
            (Self::Absent, Some(number)) => Self::Number(number),
            (Self::Number(before), Some(number)) => Self::Number(before.max(number)),
        };
    }

    fn number(self) -> Option<u64> {
        match self {
            Self::Number(number) => Some(number),
            Self::Absent | Self::Unclear => None,
        }
    }
}

impl OutputLimits {
    /// Returns the maximum number of output tokens of the answer, including reasoning, for a request in this protocol; `None` if
    /// the request has no unambiguous limit. In a Messages request the limit applies to each run of the model. A Messages request
    /// can set a limit for each model in its list `fallbacks`. In this case, the largest of all the request's limits is returned.
    /// In a Gemini-style request the limit covers all candidates together.
    pub fn for_protocol(&self, protocol: Protocol) -> Option<u64> {
        match protocol {
            Protocol::Messages => self.max_tokens.number(),
            Protocol::Responses => self.max_output_tokens.number(),
            Protocol::Gemini => {
                let candidates = match self.candidates {
                    OutputLimit::Absent => 1,
                    OutputLimit::Number(candidates) => candidates,
                    OutputLimit::Unclear => return None,
                };
                Some(self.generation_config.number()?.saturating_mul(candidates))
            }
        }
    }
}

/// The depth of a conversation's turns, which are objects in a top-level array.
const TURN_DEPTH: usize = 3;

/// The facts about the turns of a conversation. Everything before the model's last answer was part of an earlier request, so the
/// provider may have cached it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConversationTurns {
    /// The estimated number of tokens from the beginning of the model's last answer to the end of the conversation; `None` if the
    /// model has not answered yet.
    pub since_answer: Option<u64>,
    /// Whether a part of the body is marked for caching (`cache_control`).
    pub marks_cache: bool,
}

/// A reader that finds the model's last answer in a conversation. It gets every key and string from the scan of the body.
///
/// Turns are the objects in the top-level array `messages`, `input` or `contents`. An answer is recognised by its `role` or, in
/// the Responses protocol, by the `type` of its item.
#[derive(Debug, Default)]
pub(super) struct TurnReader {
    turns: ConversationTurns,
    is_in_conversation: bool,
    /// Whether the next string identifies the author of the turn.
    is_author_next: bool,
    /// Whether the last turn that was read is an answer of the model.
    in_answer: bool,
    /// The estimated number of tokens before the model's last answer; `None` if there is no answer.
    tokens_before_answer: Option<u64>,
}

impl TurnReader {
    /// Handles a key of an object at `depth`, where 1 is the top level. `read` returns the estimated number of tokens before the
    /// key.
    pub(super) fn on_key(&mut self, depth: usize, key: Option<BodyKey>, read: impl Fn() -> u64) {
        if depth == 1 {
            self.end_conversation(read);
            self.is_in_conversation = matches!(key, Some(BodyKey::Messages | BodyKey::Input | BodyKey::Contents));
        }
        self.is_author_next =
            depth == TURN_DEPTH && self.is_in_conversation && matches!(key, Some(BodyKey::Role | BodyKey::Type));
        self.turns.marks_cache |= key == Some(BodyKey::CacheControl);
    }

    /// Handles a string, as it is written between its quotes. `read` returns the estimated number of tokens before the string.
    pub(super) fn on_string(&mut self, raw: &[u8], read: impl Fn() -> u64) {
        if !std::mem::take(&mut self.is_author_next) {
            return;
        }
        let is_answer = match raw {
            b"assistant" | b"model" | b"reasoning" => true,
            // The `role` of a message identifies its author.
            b"message" => return,
            other => other.ends_with(b"_call"),
        };
        if is_answer && !self.in_answer {
            self.tokens_before_answer = Some(read());
        }
        self.in_answer = is_answer;
    }

    /// Ends the conversation, if one is being read.
    fn end_conversation(&mut self, read: impl Fn() -> u64) {
        if std::mem::take(&mut self.is_in_conversation) {
            self.turns.since_answer = self.tokens_before_answer.take().map(|at| read().saturating_sub(at));
            self.in_answer = false;
        }
    }

    /// Returns the facts. Called after the end of the body.
    pub(super) fn into_turns(mut self, read: impl Fn() -> u64) -> ConversationTurns {
        self.end_conversation(read);
        self.turns
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{Protocol, ScanLimits, scan},
        *,
    };
    use serde_json::{Value, json};

    fn turns(body: &Value) -> ConversationTurns {
        let limits = ScanLimits {
            depth_max: 64,
            references_max: 64,
        };
        scan(body.to_string().as_bytes(), Protocol::Messages, &limits)
            .unwrap()
            .turns
    }

    fn words(count: usize) -> String {
        "word ".repeat(count)
    }

    #[test]
    fn what_comes_since_the_last_answer_is_measured_in_every_protocol() {
        let bodies = [
            json!({ "messages": [
                { "role": "user", "content": words(5_000) },
                { "role": "assistant", "content": words(9) },
                { "role": "user", "content": words(3_000) },
                { "role": "assistant", "content": [{ "type": "tool_use", "input": { "role": "user" } }] },
                { "role": "user", "content": [{ "type": "tool_result", "content": words(1_000) }] },
            ], "system": words(2_000) }),
            json!({ "instructions": words(2_000), "input": [
                { "role": "user", "content": words(8_000) },
                { "type": "reasoning", "summary": [] },
                { "type": "message", "role": "assistant", "content": [{ "type": "output_text", "text": words(20) }] },
                { "type": "function_call", "call_id": "c", "arguments": "{}" },
                { "type": "function_call_output", "call_id": "c", "output": words(970) },
            ] }),
            json!({ "systemInstruction": { "parts": [{ "text": words(2_000) }] }, "contents": [
                { "role": "user", "parts": [{ "text": words(8_000) }] },
                { "role": "model", "parts": [{ "functionCall": { "name": "f" } }] },
                { "role": "user", "parts": [{ "functionResponse": { "response": { "result": words(990) } } }] },
            ] }),
        ];
        for body in bodies {
            let since = turns(&body).since_answer.unwrap();
            assert!((900..1_200).contains(&since), "{since}");
        }
    }

    #[test]
    fn a_conversation_that_begins_has_no_answer() {
        for body in [
            json!({ "messages": [{ "role": "user", "content": "role assistant" }], "tools": [{ "role": "assistant" }] }),
            json!({ "input": "hi" }),
            json!({ "metadata": [{ "role": "assistant" }], "contents": [{ "parts": [{ "text": "hi" }] }] }),
        ] {
            assert_eq!(turns(&body), ConversationTurns::default(), "{body}");
        }
    }

    #[test]
    fn a_mark_for_the_cache_is_seen_wherever_it_stands() {
        for body in [
            json!({ "cache_control": { "type": "ephemeral" } }),
            json!({ "system": [{ "text": "x", "cache_control": { "type": "ephemeral" } }] }),
            json!({ "messages": [{ "content": [{ "content": [{ "cache_control": {} }] }] }] }),
        ] {
            assert!(turns(&body).marks_cache, "{body}");
        }
        assert!(!turns(&json!({ "system": "cache_control" })).marks_cache);
    }
}
