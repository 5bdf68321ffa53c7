//! What differs from event to event where a stream brings nothing but text.

use memchr::memmem;

/// Digits of a number that may differ: all such numbers are exact, however they are read.
const DIGITS_MAX: usize = 15;

/// A member of a protocol's events whose value differs from event to event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Varying {
    /// Its key as it is written, with the quotes.
    pub(super) key: &'static [u8],
    /// What its value is.
    pub(super) value: Varies,
}

/// What a value that differs is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Varies {
    /// The text, a string.
    Text,
    /// The event's number.
    Number,
    /// A string that means nothing.
    Filling,
}

impl Varying {
    /// Where its value stands in an event, how long it is, and what it is. `None` when the key is not there, is there more than
    /// once, or its value is written in another way.
    pub(super) fn find(&self, event: &[u8]) -> Option<(usize, usize, Varies)> {
        let key_at = memmem::find(event, self.key)?;
        let behind_key = key_at.checked_add(self.key.len())?;
        let rest = event.get(behind_key..)?;
        if memmem::find(rest, self.key).is_some() {
            return None;
        }
        let before: &[u8] = match self.value {
            Varies::Number => b":",
            Varies::Text | Varies::Filling => b":\"",
        };
        let value = rest.strip_prefix(before)?;
        let length = self.value.length(value)?;
        let behind = value.get(length)?;
        let ends = match self.value {
            Varies::Number => matches!(behind, b',' | b'}'),
            Varies::Text | Varies::Filling => *behind == b'"',
        };
        ends.then_some((behind_key + before.len(), length, self.value))
    }
}

impl Varies {
    /// How long such a value at the beginning of `bytes` is; `None` when there is none, or it goes on behind them.
    #[inline]
    pub(super) fn length(self, bytes: &[u8]) -> Option<usize> {
        match self {
            Self::Text | Self::Filling => bytes
                .iter()
                .position(|byte| matches!(byte, b'"' | b'\\' | b'\n' | b'\r')),
            Self::Number => {
                let digits = bytes.iter().position(|byte| !byte.is_ascii_digit())?;
                (1..=DIGITS_MAX).contains(&digits).then_some(digits)
            }
        }
    }
}
