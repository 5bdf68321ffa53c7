//! Positions in a journal.

use std::fmt;

/// Where a record begins. Later records have greater positions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Position {
    /// The number of the segment.
    pub segment: u64,
    /// The byte offset in the segment.
    pub offset: u64,
}

impl Position {
    /// The position before the first record.
    pub(crate) const START: Self = Self { segment: 0, offset: 0 };

    /// Reads what [`Position`]'s `Display` writes.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (segment, offset) = text.trim().split_once(':')?;
        Some(Self {
            segment: segment.parse().ok()?,
            offset: offset.parse().ok()?,
        })
    }
}

impl fmt::Display for Position {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}:{}", self.segment, self.offset)
    }
}
