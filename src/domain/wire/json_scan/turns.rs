//! Finds the model's last answer in a conversation.

use super::key::BodyKey;

/// The depth of an object in an array of the top level.
const TURN_DEPTH: usize = 3;

/// The facts about a conversation's turns. Everything before the model's last answer was sent before and may be cached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConversationTurns {
    /// The estimated tokens from the beginning of the model's last answer to the end of the conversation; `None` if the model
    /// has not answered yet.
    pub since_answer: Option<u64>,
    /// Whether a part of the body is marked for the cache (`cache_control`).
    pub marks_cache: bool,
}

/// Finds the model's last answer in a conversation. Gets every key and string from the scan of the body.
///
/// Turns are the objects in the top-level array `messages`, `input` or `contents`. An answer is recognised by its `role`, or in
/// Responses by its item's `type`.
#[derive(Debug, Default)]
pub(super) struct TurnReader {
    turns: ConversationTurns,
    is_in_conversation: bool,
    /// Whether the next string names the author of the turn.
    is_author_next: bool,
    /// Whether the last turn was the model's.
    in_answer: bool,
    /// The tokens before the model's last answer.
    tokens_before_answer: Option<u64>,
}

impl TurnReader {
    /// Handles a key of an object at `depth` (1: the top level); `read` returns the number of tokens before it.
    pub(super) fn on_key(&mut self, depth: usize, key: Option<BodyKey>, read: impl Fn() -> u64) {
        if depth == 1 {
            self.end_conversation(read);
            self.is_in_conversation = matches!(key, Some(BodyKey::Messages | BodyKey::Input | BodyKey::Contents));
        }
        self.is_author_next =
            depth == TURN_DEPTH && self.is_in_conversation && matches!(key, Some(BodyKey::Role | BodyKey::Type));
        self.turns.marks_cache |= key == Some(BodyKey::CacheControl);
    }

    /// Handles a string as it is written between its quotes; `read` returns the number of tokens before it.
    pub(super) fn on_string(&mut self, raw: &[u8], read: impl Fn() -> u64) {
        if !std::mem::take(&mut self.is_author_next) {
            return;
        }
        let is_answer = match raw {
            b"assistant" | b"model" | b"reasoning" => true,
            // Its role names the author.
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

    /// Returns the facts, after the complete body.
    pub(super) fn into_turns(mut self, read: impl Fn() -> u64) -> ConversationTurns {
        self.end_conversation(read);
        self.turns
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::{Protocol, ScanLimits, scan};
    use super::*;

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
