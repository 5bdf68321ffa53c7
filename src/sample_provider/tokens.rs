//! Counts tokens of input and output, and remembers prompts as a provider's prompt cache does.

use serde_json::Value;

use super::settings::TokenCounting;

/// Input tokens under [`Counting::Fixed`].
const INPUT_FIXED: u64 = 100;
/// Maximum length of a text that is counted, in bytes; a longer one is estimated.
const EXACT_TEXT_BYTES_MAX: usize = 256 << 10;
/// Maximum number of bytes of a request that are counted; the rest is estimated.
const EXACT_REQUEST_BYTES_MAX: usize = 4 << 20;
/// Bytes per token in estimates.
const BYTES_PER_TOKEN: usize = 4;
/// Tokens of an image, document or other binary part, regardless of its size.
const BINARY_PART_TOKENS: u64 = 1000;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct InputTokens {
    pub(super) count: u64,
    /// Whether a part was estimated because of its length.
    pub(super) estimated: bool,
}

/// Counts the o200k tokens of a text.
#[cfg(feature = "exact-tokens")]
pub(super) fn count(text: &str) -> u64 {
    u64::try_from(bpe_openai::o200k_base().count(text)).unwrap_or(u64::MAX)
}

/// Estimates the tokens of a text from its bytes.
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
    // The recursion is bounded, because serde_json parses at most 128 levels.
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
            "type" | "role" | "id" | "call_id" | "tool_use_id" | "status" | "cache_control" | "signature"
            | "encrypted_content" | "thoughtSignature" | "thought_signature" => {}
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

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
}
