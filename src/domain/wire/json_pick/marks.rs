//! Marks of the current object, for conditions over several of its members.

/// What the members of an object say of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Marks {
    /// The bits that its members have set.
    pub(crate) bits: u8,
    /// Its number; `None` if it has none, or none of a byte.
    pub(crate) number: Option<u8>,
}

impl Marks {
    /// A value of the object, as it is written; only a string marks it. One that is too long to keep is none of the words.
    pub(super) fn see(&mut self, words: &[(&str, u8)], other: u8, json: &[u8], too_long: bool) {
        let text = match json {
            [b'"', inner @ .., b'"'] if !too_long => inner,
            _ if too_long => b"",
            _ => return,
        };
        let word = words.iter().find(|(word, _)| word.as_bytes() == text);
        self.bits |= word.map_or(other, |(_, bits)| *bits);
    }

    /// A number of the object, as it is written.
    pub(super) fn number(&mut self, json: &[u8]) {
        self.number = std::str::from_utf8(json).ok().and_then(|number| number.parse().ok());
    }

    /// Whether all of some bits are set, and none of some others.
    pub(super) fn fit(self, all: u8, none: u8) -> bool {
        self.bits & all == all && self.bits & none == 0
    }
}
