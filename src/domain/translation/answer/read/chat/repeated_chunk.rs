//! Recognizes, without parsing, a chunk that differs from the previous chunk only in its text. This is true of most chunks of an
//! answer.

use crate::domain::translation::{answer::read::chat::chunk::ChatChunk, json_out::plain_length};

/// The maximum length of a chunk without its text, in bytes. A longer chunk is not remembered.
const FRAME_BYTES_MAX: usize = 2048;

/// The data of the last chunk without its text. This data is stored only for a chunk that does nothing but add text. If the next
/// chunk has the same bytes before and after its text, it also does nothing but add text. The reader's state must not change
/// between the two chunks.
#[derive(Debug, Default)]
pub(super) struct RepeatedChunk {
    /// The data before the text, including the opening quote; empty if no chunk is remembered.
    before: String,
    /// The data after the text, including the closing quote.
    after: String,
}

impl RepeatedChunk {
    /// Returns the text of a chunk with this data; `None` if the chunk has to be parsed.
    pub(super) fn text_of_next<'d>(&self, data: &'d str) -> Option<&'d str> {
        if self.before.is_empty() {
            return None;
        }
        let text = data
            .strip_prefix(self.before.as_str())?
            .strip_suffix(self.after.as_str())?;
        // Text without escapes is the string's value. An empty string adds no text.
        (!text.is_empty() && plain_length(text) == text.len()).then_some(text)
    }

    /// Forgets the chunk.
    pub(super) fn forget(&mut self) {
        self.before.clear();
        self.after.clear();
    }

    /// Remembers a chunk that was parsed from `data`, if the chunk only adds text without escapes. The reader must already have
    /// handled the chunk.
    pub(super) fn remember(&mut self, data: &str, chunk: &ChatChunk<'_>) {
        let Some(text) = chunk.only_text() else { return };
        // The text is a part of the data, so the difference of their addresses is its offset.
        let Some(start) = text.as_ptr().addr().checked_sub(data.as_ptr().addr()) else {
            return;
        };
        let (Some(before), Some(after)) = (data.get(..start), data.get(start + text.len()..)) else {
            return;
        };
        if before.len() + after.len() <= FRAME_BYTES_MAX {
            self.before.push_str(before);
            self.after.push_str(after);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn last(data: &str) -> RepeatedChunk {
        let mut last = RepeatedChunk::default();
        last.remember(data, &serde_json::from_str(data).expect("a chunk"));
        last
    }

    #[test]
    fn a_chunk_with_other_text_is_recognized() {
        let last = last(r#"{"id":"c","choices":[{"index":0,"delta":{"content":"one"}}],"usage":null}"#);
        for text in ["two", "one", "\u{e9}\u{20ac}, x"] {
            let data = format!(r#"{{"id":"c","choices":[{{"index":0,"delta":{{"content":"{text}"}}}}],"usage":null}}"#);
            assert_eq!(last.text_of_next(&data), Some(text));
        }
    }

    #[test]
    fn a_chunk_that_differs_in_more_than_plain_text_is_parsed() {
        let last = last(r#"{"choices":[{"delta":{"content":"one"}}]}"#);
        for data in [
            r#"{"choices":[{"delta":{"content":""}}]}"#,
            r#"{"choices":[{"delta":{"content":"a\nb"}}]}"#,
            r#"{"choices":[{"delta":{"content":"a","refusal":"b"}}]}"#,
            r#"{"choices":[{"delta":{"content":"a"},"finish_reason":"stop"}]}"#,
            r#"{"choices":[{"delta":{"content":"a"}},{"delta":{"content":"b"}}]}"#,
            r#"{"choices":[{"delta":{"content":1}}]}"#,
            r#"{"choices":[{"delta":{"content":"}}]}"#,
        ] {
            assert_eq!(last.text_of_next(data), None, "{data}");
        }
    }

    #[test]
    fn only_chunks_that_do_nothing_but_add_text_are_remembered() {
        for data in [
            r#"{"choices":[{"delta":{"content":"a\u0041"}}]}"#,
            r#"{"choices":[{"delta":{"content":""}}]}"#,
            r#"{"choices":[{"delta":{"content":[{"type":"text","text":"a"}]}}]}"#,
            r#"{"choices":[{"delta":{"reasoning_content":"a"}}]}"#,
            r#"{"choices":[{"delta":{"content":"a","reasoning_content":"b"}}]}"#,
            r#"{"choices":[{"delta":{"content":"a","refusal":"b"}}]}"#,
            r#"{"choices":[{"delta":{"content":"a","annotations":[{}]}}]}"#,
            r#"{"choices":[{"delta":{"content":"a","audio":{}}}]}"#,
            r#"{"choices":[{"delta":{"content":"a","tool_calls":[{"index":0,"function":{"name":"f"}}]}}]}"#,
            r#"{"choices":[{"delta":{"content":"a","function_call":{"name":"f"}}}]}"#,
            r#"{"choices":[{"delta":{"content":"a"},"finish_reason":"stop"}]}"#,
            r#"{"choices":[{"index":1,"delta":{"content":"a"}}]}"#,
            r#"{"choices":[{"delta":{"content":"a"}},{"index":1,"delta":{"content":"b"}}]}"#,
            r#"{"choices":[{"delta":{"content":"a"},"error":{}}]}"#,
            r#"{"choices":[{"delta":{"content":"a"}}],"error":{}}"#,
            r#"{"choices":[]}"#,
        ] {
            assert!(last(data).before.is_empty(), "{data}");
        }
        let frame = "x".repeat(FRAME_BYTES_MAX);
        assert!(
            last(&format!(
                r#"{{"id":"{frame}","choices":[{{"delta":{{"content":"a"}}}}]}}"#
            ))
            .before
            .is_empty()
        );
    }
}
