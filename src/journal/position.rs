//! Positions in a journal.

use std::fmt;

/// The bits of a position's number that are its offset.
const OFFSET_BITS: u32 = 32;
const OFFSET_MASK: u64 = (1 << OFFSET_BITS) - 1;

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

    /// The position as one number that sorts in the same order: a segment has less than 4 GiB.
    pub(crate) fn number(self) -> u64 {
        (self.segment << OFFSET_BITS) | (self.offset & OFFSET_MASK)
    }

    /// The inverse of [`Position::number`].
    pub(crate) fn from_number(number: u64) -> Self {
        Self {
            segment: number >> OFFSET_BITS,
            offset: number & OFFSET_MASK,
        }
    }

    /// Parses the text that `Display` writes.
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
