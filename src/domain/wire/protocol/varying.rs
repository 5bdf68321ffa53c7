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
    /// A number in the event's usage.
    Count,
}

/// An event that has said nothing but more text, and how much was used so far.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spoken {
    /// What else may differ in the next one.
    pub(super) varying: &'static [Varying],
    /// The usage that it carries, if it carries one.
    pub(super) usage: Option<Carried>,
}

/// A member of an event that is kept as it is written.
#[derive(Clone, Copy, Debug)]
pub(super) struct Carried {
    /// Its key as it is written, with the quotes.
    pub(super) key: &'static [u8],
    /// Bytes of its value.
    pub(super) length: usize,
}

impl Carried {
    /// Where its value begins in an event. `None` when the key is not there, is there more than once, or is followed by
    /// something else than a colon and at most one space.
    pub(super) fn find(&self, event: &[u8]) -> Option<usize> {
        let value_at = behind(event, self.key, b":")?;
        let after_space = value_at + usize::from(event.get(value_at) == Some(&b' '));
        let end = after_space.checked_add(self.length)?;
        (event.get(after_space) == Some(&b'{') && end <= event.len()).then_some(after_space)
    }
}

/// Where an event goes on behind a key, which stands in it once, and what has to follow that.
fn behind(event: &[u8], key: &[u8], then: &[u8]) -> Option<usize> {
    let at = memmem::find(event, key)?.checked_add(key.len())?;
    let rest = event.get(at..)?;
    (memmem::find(rest, key).is_none() && rest.starts_with(then)).then_some(at + then.len())
}

impl Varying {
    /// Where its value stands in an event, how long it is, and what it is. `None` when the key is not there, is there more than
    /// once, or its value is written in another way.
    pub(super) fn find(&self, event: &[u8]) -> Option<(usize, usize, Varies)> {
        let before: &[u8] = match self.value {
            Varies::Number | Varies::Count => b":",
            Varies::Text | Varies::Filling => b":\"",
        };
        let mut at = behind(event, self.key, before)?;
        if self.value == Varies::Count && event.get(at) == Some(&b' ') {
            at += 1;
        }
        let value = event.get(at..)?;
        let length = self.value.length(value)?;
        let next = value.get(length)?;
        let ends = match self.value {
            Varies::Number | Varies::Count => matches!(next, b',' | b'}'),
            Varies::Text | Varies::Filling => *next == b'"',
        };
        ends.then_some((at, length, self.value))
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
            Self::Number | Self::Count => {
                let digits = bytes.iter().position(|byte| !byte.is_ascii_digit())?;
                (1..=DIGITS_MAX).contains(&digits).then_some(digits)
            }
        }
    }
}
