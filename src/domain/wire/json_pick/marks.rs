//! Marks of the current object, for conditions over several of its members.

/// The bits that strings in the object have set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Marks(u8);

impl Marks {
    /// A value of the object, as it is written; only a string marks it. One that is too long to keep is none of the words.
    pub(super) fn see(&mut self, words: &[(&str, u8)], other: u8, json: &[u8], too_long: bool) {
        let text = match json {
            [b'"', inner @ .., b'"'] if !too_long => inner,
            _ if too_long => b"",
            _ => return,
        };
        let word = words.iter().find(|(word, _)| word.as_bytes() == text);
        self.0 |= word.map_or(other, |(_, bits)| *bits);
    }

    /// Whether all of some bits are set, and none of some others.
    pub(super) fn fit(self, all: u8, none: u8) -> bool {
        self.0 & all == all && self.0 & none == 0
    }
}
