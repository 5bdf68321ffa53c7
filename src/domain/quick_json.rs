//! Writes JSON on hot paths, such as the access log: the same bytes as serde, in a fraction of the instructions.
//!
//! It is faster because the caller passes each member's name with its punctuation as ready JSON, and because strings without
//! characters to escape are copied. Rarer values are left to serde.

use serde::Serialize;

/// The number of bytes that are examined at once.
const WORD_BYTES: usize = 8;

/// A writer that appends JSON to a buffer.
pub(crate) struct JsonWriter<'a>(pub &'a mut Vec<u8>);

impl JsonWriter<'_> {
    /// Appends `json` to the buffer without any change.
    pub(crate) fn put(&mut self, json: &str) {
        self.0.extend_from_slice(json.as_bytes());
    }

    /// Appends `before`, which is JSON, and then `text` as a JSON string.
    ///
    /// # Errors
    /// As for [`Self::value`].
    pub(crate) fn text(&mut self, before: &str, text: &str) -> serde_json::Result<()> {
        if !is_plain(text.as_bytes()) {
            return self.value(before, text);
        }
        self.put(before);
        self.0.push(b'"');
        self.put(text);
        self.0.push(b'"');
        Ok(())
    }

    /// Appends `before`, which is JSON, and then `value` as serde writes it.
    ///
    /// # Errors
    /// As for [`serde_json::to_writer`].
    pub(crate) fn value<T: Serialize + ?Sized>(&mut self, before: &str, value: &T) -> serde_json::Result<()> {
        self.put(before);
        serde_json::to_writer(&mut *self.0, value)
    }

    /// Appends `before`, which is JSON, and then `list` as a JSON array. Appends nothing if the list is empty.
    ///
    /// # Errors
    /// As for [`Self::value`].
    pub(crate) fn list<T: Serialize>(&mut self, before: &str, list: &[T]) -> serde_json::Result<()> {
        if list.is_empty() {
            return Ok(());
        }
        self.value(before, list)
    }

    /// Appends `before`, which is JSON, and then `value` as serde writes it. Appends nothing for `None`.
    ///
    /// # Errors
    /// As for [`Self::value`].
    pub(crate) fn optional<T: Serialize>(&mut self, before: &str, value: Option<&T>) -> serde_json::Result<()> {
        value.map_or(Ok(()), |value| self.value(before, value))
    }
}

/// Whether a text needs no escapes in a JSON string.
fn is_plain(text: &[u8]) -> bool {
    if let Some(last) = text.last_chunk() {
        // The last 8 bytes may overlap the word before them.
        return text.as_chunks().0.iter().all(is_plain_word) && is_plain_word(last);
    }
    let mut word = [b' '; WORD_BYTES];
    word.iter_mut().zip(text).for_each(|(to, from)| *to = *from);
    is_plain_word(&word)
}

/// Whether no byte of `word` is a control character, a quote or a backslash
/// (<https://graphics.stanford.edu/~seander/bithacks.html>, "Determine if a word has a byte less than n").
fn is_plain_word(word: &[u8; WORD_BYTES]) -> bool {
    let word = u64::from_le_bytes(*word);
    let less_than = |word: u64, bound: u8| word.wrapping_sub(every_byte(bound)) & !word & every_byte(0x80);
    let quotes = less_than(word ^ every_byte(b'"'), 1);
    let backslashes = less_than(word ^ every_byte(b'\\'), 1);
    less_than(word, b' ') | quotes | backslashes == 0
}

const fn every_byte(byte: u8) -> u64 {
    u64::from_le_bytes([byte; WORD_BYTES])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_text_is_what_serde_makes_of_it(text in "[ -~\u{0}-\u{20}\"\\\\\u{7f}-\u{a0}\u{20ac}]{0,40}") {
            let mut written = Vec::new();
            JsonWriter(&mut written).text("", &text).expect("a text has a form in JSON");
            prop_assert_eq!(written, serde_json::to_vec(&text).expect("a text has a form in JSON"));
        }

        #[test]
        fn a_text_is_plain_if_none_of_its_bytes_needs_an_escape(text in prop::collection::vec(any::<u8>(), 0..40)) {
            let is_plain_byte = |byte: &u8| *byte >= b' ' && !matches!(byte, b'"' | b'\\');
            prop_assert_eq!(is_plain(&text), text.iter().all(is_plain_byte));
        }
    }
}
