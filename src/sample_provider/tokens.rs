//! Counts tokens of input and output, and simulates a provider's prompt cache.

use std::{
    collections::HashSet,
    hash::{DefaultHasher, Hash, Hasher},
};

use parking_lot::Mutex;
use serde_json::Value;

use crate::{domain::wire::UpstreamProtocol, sample_provider::TokenCounting};

/// The number of input tokens that [`TokenCounting::Fixed`] reports.
const INPUT_FIXED: u64 = 100;
/// The maximum length in bytes of a text whose tokens are counted. The tokens of a longer text are estimated.
const EXACT_TEXT_BYTES_MAX: usize = 256 << 10;
/// The tokens of at most this many bytes of a request are counted. The tokens of the remaining bytes are estimated.
const EXACT_REQUEST_BYTES_MAX: usize = 4 << 20;
/// The number of bytes per token in estimates.
const BYTES_PER_TOKEN: usize = 4;
/// The number of tokens of an image, a document or another binary part, whatever its size.
const BINARY_PART_TOKENS: u64 = 1000;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct InputTokens {
    pub(super) count: u64,
    /// Whether the tokens of a part were estimated because the part is long.
    pub(super) estimated: bool,
}

/// Counts the tokens of a text with o200k.
#[cfg(feature = "exact-tokens")]
pub(super) fn count(text: &str) -> u64 {
    u64::try_from(bpe_openai::o200k_base().count(text)).unwrap_or(u64::MAX)
}

/// Estimates the tokens of a text from its characters.
#[cfg(not(feature = "exact-tokens"))]
pub(super) fn count(text: &str) -> u64 {
    let mut classes = crate::domain::wire::tokens::CharClasses::default();
    classes.push(text.as_bytes());
    classes.tokens()
}

/// Counts the tokens of a part of a prompt.
pub(super) fn count_part(part: &Value) -> u64 {
    let mut tally = InputTokenTally::default();
    tally.add_value(part);
    tally.tokens.count
}

/// Counts the input tokens of a request.
pub(super) fn count_input(body: &Value, counting: TokenCounting) -> InputTokens {
    if counting == TokenCounting::Fixed {
        return InputTokens {
            count: INPUT_FIXED,
            estimated: false,
        };
    }
    let mut tally = InputTokenTally::default();
    let body = body.get("generateContentRequest").unwrap_or(body);
    let fields = [
        "system",
        "messages",
        "instructions",
        "input",
        "systemInstruction",
        "system_instruction",
        "contents",
    ];
    for field in fields {
        if let Some(value) = body.get(field) {
            tally.add_value(value);
        }
    }
    if let Some(tools) = body.get("tools") {
        tally.add_text(&tools.to_string());
    }
    tally.tokens
}

#[derive(Default)]
struct InputTokenTally {
    tokens: InputTokens,
    counted_bytes: usize,
}

impl InputTokenTally {
    // The depth of the recursion is limited, because serde_json parses at most 128 levels.
    fn add_value(&mut self, value: &Value) {
        match value {
            Value::String(text) => self.add_text(text),
            Value::Array(items) => items.iter().for_each(|item| self.add_value(item)),
            Value::Object(fields) => {
                for (name, field) in fields {
                    self.add_field(name, field);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    fn add_field(&mut self, name: &str, field: &Value) {
        match name {
            "type" | "role" | "id" | "call_id" | "tool_call_id" | "tool_use_id" | "status" | "cache_control"
            | "signature" | "encrypted_content" | "thoughtSignature" | "thought_signature" => {}
            "source" | "inlineData" | "inline_data" | "fileData" | "file_data" | "image_url" | "data" => {
                self.tokens.count = self.tokens.count.saturating_add(BINARY_PART_TOKENS);
            }
            _ => self.add_value(field),
        }
    }

    fn add_text(&mut self, text: &str) {
        let exact = text.len() <= EXACT_TEXT_BYTES_MAX
            && self.counted_bytes.saturating_add(text.len()) <= EXACT_REQUEST_BYTES_MAX;
        let tokens = if exact {
            self.counted_bytes += text.len();
            count(text)
        } else {
            self.tokens.estimated = true;
            u64::try_from(text.len().div_ceil(BYTES_PER_TOKEN)).unwrap_or(u64::MAX)
        };
        self.tokens.count = self.tokens.count.saturating_add(tokens);
    }
}

/// The minimum number of tokens in a cached beginning of a prompt.
const CACHED_TOKENS_MIN: u64 = 1_024;
/// The maximum number of stored beginnings. When there are more, all are dropped.
const BEGINNINGS_MAX: usize = 65_536;

/// The beginnings of prompts that were sent before. A prompt is a sequence of parts: the tools, the parts of the system text, and
/// the blocks of each turn. A beginning that was sent before counts as read from the cache if it has at least
/// [`CACHED_TOKENS_MIN`] tokens. In the Messages protocol, the parts after this beginning, up to the last part with
/// `cache_control`, count as written to the cache. The other protocols cache automatically and report no writes.
#[derive(Debug, Default)]
pub(super) struct PromptCache {
    beginnings: Mutex<HashSet<u64>>,
}

/// The numbers of tokens of a prompt that were read from and written to the cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct PromptCacheUse {
    pub(super) read: u64,
    /// The number of newly cached tokens.
    pub(super) written: u64,
}

impl PromptCache {
    /// Looks up the beginnings of a prompt, and stores them. Returns the numbers of tokens read from and written to the cache.
    pub(super) fn record(&self, protocol: UpstreamProtocol, body: &Value) -> PromptCacheUse {
        let parts = parts(body);
        let kept = match protocol {
            UpstreamProtocol::Messages => parts.iter().rposition(|part| part.get("cache_control").is_some()),
            UpstreamProtocol::Responses | UpstreamProtocol::Gemini | UpstreamProtocol::Chat => {
                parts.len().checked_sub(1)
            }
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
            sum = sum.saturating_add(count_part(part));
            if sum >= CACHED_TOKENS_MIN && !known.insert(hasher.finish()) {
                read = sum;
            }
        }
        let is_written = protocol == UpstreamProtocol::Messages && sum >= CACHED_TOKENS_MIN;
        PromptCacheUse {
            read,
            written: if is_written { sum - read } else { 0 },
        }
    }
}

/// Returns the parts of a prompt, in the order in which a model reads them.
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

/// Renders a part without `cache_control`, because clients move this member from turn to turn.
fn plain(part: &Value) -> String {
    let mut part = part.clone();
    if let Some(fields) = part.as_object_mut() {
        fields.shift_remove("cache_control");
    }
    part.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_texts_of_a_request_are_counted_and_its_structure_is_not() {
        let body = json!({"model": "not counted", "system": [{"type": "text", "text": "Be brief."}],
            "messages": [{"role": "user", "content": "Hello world"}]});
        let tokens = count_input(&body, TokenCounting::Text);
        assert_eq!(
            tokens,
            InputTokens {
                count: count("Be brief.") + count("Hello world"),
                estimated: false
            }
        );
        #[cfg(feature = "exact-tokens")]
        assert_eq!(count("Hello world"), 2);
    }

    #[test]
    fn a_long_part_is_estimated_and_flagged() {
        let body = json!({"contents": [{"parts": [{"text": "a".repeat(EXACT_TEXT_BYTES_MAX + 4)}]}]});
        let tokens = count_input(&body, TokenCounting::Text);
        assert_eq!(
            tokens,
            InputTokens {
                count: 65_537,
                estimated: true
            }
        );
    }

    #[test]
    fn an_image_has_the_same_count_whatever_its_size() {
        let body =
            json!({"contents": [{"parts": [{"inlineData": {"mimeType": "image/png", "data": "A".repeat(99)}}]}]});
        assert_eq!(count_input(&body, TokenCounting::Text).count, BINARY_PART_TOKENS);
    }

    #[test]
    fn fixed_counts_do_not_look_at_the_request() {
        assert_eq!(
            count_input(&json!({"messages": ["x"]}), TokenCounting::Fixed).count,
            INPUT_FIXED
        );
    }

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
        let new = cache.record(UpstreamProtocol::Messages, &first);
        assert!(new.read == 0 && new.written >= 2_000, "{new:?}");
        let again = cache.record(UpstreamProtocol::Messages, &first);
        assert_eq!((again.read, again.written), (new.written, 0));
        let longer =
            json!({ "system": [text("river")], "messages": [{ "role": "user", "content": [marked("stone")] }] });
        let longer = cache.record(UpstreamProtocol::Messages, &longer);
        assert_eq!(longer.read, new.written, "the mark is no part of the text");
        assert!(longer.written >= 2_000, "{longer:?}");
        let unmarked = json!({ "system": [text("river")], "messages": [] });
        assert_eq!(
            cache.record(UpstreamProtocol::Messages, &unmarked),
            PromptCacheUse::default()
        );
    }

    #[test]
    fn the_other_protocols_need_no_mark_and_short_prompts_are_not_kept() {
        let cache = PromptCache::default();
        let body = json!({ "input": [{ "role": "user", "content": [text("river")] }] });
        assert_eq!(
            cache.record(UpstreamProtocol::Responses, &body),
            PromptCacheUse::default()
        );
        assert!(cache.record(UpstreamProtocol::Responses, &body).read >= 2_000);
        let body = json!({ "messages": [{ "role": "user", "content": "stone ".repeat(2_000) }] });
        assert_eq!(cache.record(UpstreamProtocol::Chat, &body), PromptCacheUse::default());
        assert!(cache.record(UpstreamProtocol::Chat, &body).read >= 2_000);
        let short = json!({ "input": "hi" });
        for _ in 0..2 {
            assert_eq!(
                cache.record(UpstreamProtocol::Responses, &short),
                PromptCacheUse::default()
            );
        }
    }
}
