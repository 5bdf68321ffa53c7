//! The prompt cache: remembers the beginnings of prompts, and reports cached tokens like providers with automatic or marked
//! caching.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};

use parking_lot::Mutex;
use serde_json::Value;

use super::tokens;
use crate::domain::wire::protocol::Protocol;

/// Minimum number of tokens of a cached beginning.
const CACHED_TOKENS_MIN: u64 = 1_024;
/// Maximum number of remembered beginnings. Beyond it, all are forgotten.
const BEGINNINGS_MAX: usize = 65_536;

/// The beginnings of prompts that have been sent before. A prompt is a sequence of parts: the tools, the parts of the system
/// text, the blocks of each turn. A beginning of at least [`CACHED_TOKENS_MIN`] tokens that was sent before counts as read from
/// the cache. In the Messages protocol, the rest up to the last `cache_control` counts as written; the other protocols cache
/// automatically and report no writes.
#[derive(Debug, Default)]
pub(super) struct PromptCache {
    beginnings: Mutex<HashSet<u64>>,
}

/// The cached tokens of a prompt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct PromptCacheUse {
    pub(super) read: u64,
    /// Tokens that were not cached and are now.
    pub(super) written: u64,
}

impl PromptCache {
    /// Looks up a prompt, and remembers it.
    pub(super) fn record(&self, protocol: Protocol, body: &Value) -> PromptCacheUse {
        let parts = parts(body);
        let kept = match protocol {
            Protocol::Messages => parts.iter().rposition(|part| part.get("cache_control").is_some()),
            Protocol::Responses | Protocol::Gemini => parts.len().checked_sub(1),
        };
        let Some(kept) = kept else {
            return PromptCacheUse::default();
        };
        let mut known = self.beginnings.lock();
        if known.len() > BEGINNINGS_MAX {
            known.clear();
        }
        let (mut hasher, mut sum, mut read) = (DefaultHasher::new(), 0_u64, 0);
        for part in parts.into_iter().take(kept + 1) {
            plain(part).hash(&mut hasher);
            sum = sum.saturating_add(tokens::count_part(part));
            if sum >= CACHED_TOKENS_MIN && !known.insert(hasher.finish()) {
                read = sum;
            }
        }
        let is_written = protocol == Protocol::Messages && sum >= CACHED_TOKENS_MIN;
        PromptCacheUse {
            read,
            written: if is_written { sum - read } else { 0 },
        }
    }
}

/// The parts of a prompt, in the order in which a model reads them.
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

/// A part without `cache_control`, which moves from turn to turn.
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
        let new = cache.record(Protocol::Messages, &first);
        assert!(new.read == 0 && new.written >= 2_000, "{new:?}");
        let again = cache.record(Protocol::Messages, &first);
        assert_eq!((again.read, again.written), (new.written, 0));
        let longer =
            json!({ "system": [text("river")], "messages": [{ "role": "user", "content": [marked("stone")] }] });
        let longer = cache.record(Protocol::Messages, &longer);
        assert_eq!(longer.read, new.written, "the mark is no part of the text");
        assert!(longer.written >= 2_000, "{longer:?}");
        let unmarked = json!({ "system": [text("river")], "messages": [] });
        assert_eq!(cache.record(Protocol::Messages, &unmarked), PromptCacheUse::default());
    }

    #[test]
    fn the_other_protocols_need_no_mark_and_short_prompts_are_not_kept() {
        let cache = PromptCache::default();
        let body = json!({ "input": [{ "role": "user", "content": [text("river")] }] });
        assert_eq!(cache.record(Protocol::Responses, &body), PromptCacheUse::default());
        assert!(cache.record(Protocol::Responses, &body).read >= 2_000);
        let short = json!({ "input": "hi" });
        for _ in 0..2 {
            assert_eq!(cache.record(Protocol::Responses, &short), PromptCacheUse::default());
        }
    }
}
