//! Finds the model's last answer in a conversation. What precedes it was sent before and may be in a cache.
//!
//! Fed with every key and string by the scan of the body. Turns are the objects in the top-level array `messages`,
//! `input` or `contents`. An answer is recognised by its `role`, or in Responses by its item's `type`.

use super::key::Key;

/// The depth of an object in an array of the top level.
const TURN_DEPTH: usize = 3;

/// What the body says of its turns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Turns {
    /// The tokens from the beginning of the model's last answer to the end of the conversation, estimated; `None`: the model
    /// has not answered yet.
    pub since_answer: Option<u64>,
    /// Whether something is marked for the cache (`cache_control`).
    pub marks_cache: bool,
}

/// What is being read.
#[derive(Debug, Default)]
pub(super) struct TurnsRead {
    turns: Turns,
    in_talk: bool,
    /// Whether the next string tells whose the turn is.
    is_author_next: bool,
    /// Whether the turn before this one was the model's.
    in_answer: bool,
    /// What had been read when its answer began.
    answer_at: Option<u64>,
}

impl TurnsRead {
    /// A key of an object at `depth` (1: the top level); `read` tells the tokens before it.
    pub(super) fn key(&mut self, depth: usize, key: Option<Key>, read: impl Fn() -> u64) {
        if depth == 1 {
            self.end(read);
            self.in_talk = matches!(key, Some(Key::Messages | Key::Input | Key::Contents));
        }
        self.is_author_next = depth == TURN_DEPTH && self.in_talk && matches!(key, Some(Key::Role | Key::Type));
        self.turns.marks_cache |= key == Some(Key::CacheControl);
    }

    /// A string as it is written between its quotes; `read` tells the tokens before it.
    pub(super) fn string(&mut self, raw: &[u8], read: impl Fn() -> u64) {
        if !std::mem::take(&mut self.is_author_next) {
            return;
        }
        let is_answer = match raw {
            b"assistant" | b"model" | b"reasoning" => true,
            // Its role says whose it is.
            b"message" => return,
            other => other.ends_with(b"_call"),
        };
        if is_answer && !self.in_answer {
            self.answer_at = Some(read());
        }
        self.in_answer = is_answer;
    }

    /// The conversation ends here, if this is one.
    fn end(&mut self, read: impl Fn() -> u64) {
        if std::mem::take(&mut self.in_talk) {
            self.turns.since_answer = self.answer_at.take().map(|at| read().saturating_sub(at));
            self.in_answer = false;
        }
    }

    /// What there was, after the whole body.
    pub(super) fn into_turns(mut self, read: impl Fn() -> u64) -> Turns {
        self.end(read);
        self.turns
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::{Protocol, ScanLimits, scan};
    use super::*;

    fn turns(body: &Value) -> Turns {
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
            assert_eq!(turns(&body), Turns::default(), "{body}");
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
