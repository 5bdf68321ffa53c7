//! Marks of an object.

/// The marks of an object, for conditions over several of its members.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ObjectMarks {
    /// The bits set by its members.
    pub(crate) bits: u8,
    /// Its number; `None` if it is missing or does not fit into a byte.
    pub(crate) number: Option<u8>,
}

impl ObjectMarks {
    /// Sets the bits of a member's value `json`, if that is a string. A string that is too long to buffer matches no word.
    pub(super) fn mark_word(&mut self, words: &[(&str, u8)], other: u8, json: &[u8], too_long: bool) {
        let text = match json {
            [b'"', inner @ .., b'"'] if !too_long => inner,
            _ if too_long => b"",
            _ => return,
        };
        let word = words.iter().find(|(word, _)| word.as_bytes() == text);
        self.bits |= word.map_or(other, |(_, bits)| *bits);
    }

    /// Sets the number from JSON text.
    pub(super) fn set_number(&mut self, json: &[u8]) {
        self.number = std::str::from_utf8(json).ok().and_then(|number| number.parse().ok());
    }

    /// Whether all bits of `all` are set, and no bit of `none`.
    pub(super) fn has_bits(self, all: u8, none: u8) -> bool {
        self.bits & all == all && self.bits & none == 0
    }
}
