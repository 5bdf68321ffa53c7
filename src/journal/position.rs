//! Positions in a journal.

use std::fmt;

/// How many bits of a position's number are its offset.
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

    /// The position as one number, in the same order: a segment has less than 4 GiB.
    pub(crate) fn number(self) -> u64 {
        (self.segment << OFFSET_BITS) | (self.offset & OFFSET_MASK)
    }

    /// The position that [`Position::number`] has made this of.
    pub(crate) fn of_number(number: u64) -> Self {
        Self {
            segment: number >> OFFSET_BITS,
            offset: number & OFFSET_MASK,
        }
    }

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
