//! The prompt cache: which beginnings of prompts have been sent before, as providers with automatic or marked caching
//! report it.
//!
//! A prompt is a row of parts: the tools, the parts of the system text, the blocks of each turn. A beginning of at least
//! [`CACHED_TOKENS_MIN`] tokens that was sent before is read. In the Messages protocol what stands before the last
//! `cache_control` is written; the other two cache by themselves, and report no writing.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};

use parking_lot::Mutex;
use serde_json::Value;

use super::tokens;
use crate::domain::wire::protocol::Protocol;

/// Shorter beginnings are not cached.
const CACHED_TOKENS_MIN: u64 = 1_024;
/// Beginnings remembered; beyond it all are forgotten.
const BEGINNINGS_MAX: usize = 65_536;

/// What has been sent before.
#[derive(Debug, Default)]
pub(super) struct PromptCache {
    beginnings: Mutex<HashSet<u64>>,
}

/// What of a prompt is in the cache, in tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Cached {
    pub(super) read: u64,
    /// Sent now, and kept.
    pub(super) written: u64,
}

impl PromptCache {
    /// Looks a prompt up, and remembers it.
    pub(super) fn pass(&self, protocol: Protocol, body: &Value) -> Cached {
        let parts = parts(body);
        let kept = match protocol {
            Protocol::Messages => parts.iter().rposition(|part| part.get("cache_control").is_some()),
            Protocol::Responses | Protocol::Gemini => parts.len().checked_sub(1),
        };
        let Some(kept) = kept else { return Cached::default() };
        let mut known = self.beginnings.lock();
        if known.len() > BEGINNINGS_MAX {
            known.clear();
        }
        let (mut hasher, mut sum, mut read) = (DefaultHasher::new(), 0_u64, 0);
        for part in parts.into_iter().take(kept + 1) {
            plain(part).hash(&mut hasher);
            sum = sum.saturating_add(tokens::of_part(part));
            if sum >= CACHED_TOKENS_MIN && !known.insert(hasher.finish()) {
                read = sum;
            }
        }
        let is_written = protocol == Protocol::Messages && sum >= CACHED_TOKENS_MIN;
        Cached {
            read,
            written: if is_written { sum - read } else { 0 },
        }
    }
}

/// The parts in the order in which a model reads them.
fn parts(body: &Value) -> Vec<&Value> {
    let fields = [
        "tools",
        "system",
        "instructions",
        "systemInstruction",
        "messages",
        "input",
        "contents",
    ];
    let mut parts = Vec::new();
    for value in fields.iter().filter_map(|field| body.get(*field)) {
        let Value::Array(items) = value else {
            parts.push(value);
            continue;
        };
        for item in items {
            match item.get("content") {
                Some(Value::Array(blocks)) => parts.extend(blocks),
                _ => parts.push(item),
            }
        }
    }
    parts
}

/// A part without the mark, which wanders from turn to turn.
fn plain(part: &Value) -> String {
    let mut part = part.clone();
    if let Some(fields) = part.as_object_mut() {
        fields.shift_remove("cache_control");
    }
    part.to_string()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn text(word: &str) -> Value {
        json!({ "type": "text", "text": format!("{word} ").repeat(2_000) })
    }

    fn marked(word: &str) -> Value {
        let mut part = text(word);
        part["cache_control"] = json!({ "type": "ephemeral" });
        part
    }

    #[test]
    fn what_was_sent_before_is_read_and_the_rest_up_to_the_mark_is_written() {
        let cache = PromptCache::default();
        let first = json!({ "system": [marked("river")], "messages": [{ "role": "user", "content": "hi" }] });
        let new = cache.pass(Protocol::Messages, &first);
        assert!(new.read == 0 && new.written >= 2_000, "{new:?}");
        let again = cache.pass(Protocol::Messages, &first);
        assert_eq!((again.read, again.written), (new.written, 0));
        let longer =
            json!({ "system": [text("river")], "messages": [{ "role": "user", "content": [marked("stone")] }] });
        let longer = cache.pass(Protocol::Messages, &longer);
        assert_eq!(longer.read, new.written, "the mark is no part of the text");
        assert!(longer.written >= 2_000, "{longer:?}");
        let unmarked = json!({ "system": [text("river")], "messages": [] });
        assert_eq!(cache.pass(Protocol::Messages, &unmarked), Cached::default());
    }

    #[test]
    fn the_other_protocols_need_no_mark_and_short_prompts_are_not_kept() {
        let cache = PromptCache::default();
        let body = json!({ "input": [{ "role": "user", "content": [text("river")] }] });
        assert_eq!(cache.pass(Protocol::Responses, &body), Cached::default());
        assert!(cache.pass(Protocol::Responses, &body).read >= 2_000);
        let short = json!({ "input": "hi" });
        for _ in 0..2 {
            assert_eq!(cache.pass(Protocol::Responses, &short), Cached::default());
        }
    }
}
