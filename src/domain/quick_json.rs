//! JSON that is written for each request: what serde makes of it, in a fraction of the instructions.
//!
//! Each field's name stands in the caller's code with the punctuation around it, and most texts need no escapes. What is
//! seldom there is left to serde.

use serde::Serialize;

/// The bytes that are looked at together.
const BLOCK_BYTES: usize = 16;

/// Where the JSON goes.
pub(crate) struct Json<'a>(pub &'a mut Vec<u8>);

impl Json<'_> {
    /// JSON as it stands here.
    pub(crate) fn put(&mut self, json: &str) {
        self.0.extend_from_slice(json.as_bytes());
    }

    /// A string, behind what stands in front of it.
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

    /// Whatever serde makes of it.
    ///
    /// # Errors
    /// As for [`serde_json::to_writer`].
    pub(crate) fn value<T: Serialize + ?Sized>(&mut self, before: &str, value: &T) -> serde_json::Result<()> {
        self.put(before);
        serde_json::to_writer(&mut *self.0, value)
    }

    /// A list, which is left out if it is empty.
    ///
    /// # Errors
    /// As for [`Self::value`].
    pub(crate) fn list<T: Serialize>(&mut self, before: &str, list: &[T]) -> serde_json::Result<()> {
        if list.is_empty() {
            return Ok(());
        }
        self.value(before, list)
    }

    /// What is left out if there is none.
    ///
    /// # Errors
    /// As for [`Self::value`].
    pub(crate) fn known<T: Serialize>(&mut self, before: &str, value: Option<&T>) -> serde_json::Result<()> {
        value.map_or(Ok(()), |value| self.value(before, value))
    }
}

/// Whether a text stands in JSON as it is.
fn is_plain(text: &[u8]) -> bool {
    let is_plain = |byte: u8| (byte >= 0x20) & (byte != b'"') & (byte != b'\\');
    let (blocks, rest) = text.as_chunks::<BLOCK_BYTES>();
    // Each block as a whole, without a branch for each byte.
    let plain_block = |block: &[u8; BLOCK_BYTES]| block.iter().fold(true, |plain, byte| plain & is_plain(*byte));
    blocks.iter().all(plain_block) && rest.iter().all(|byte| is_plain(*byte))
}
