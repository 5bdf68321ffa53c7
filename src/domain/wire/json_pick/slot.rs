//! The storage of a picked value.

use std::borrow::Cow;

use super::marks::Marks;
use super::path::{LIST_BYTES_MAX, PathBits};

/// Between the values of a list: no JSON text of a scalar has one.
const NEXT: u8 = b'\n';
/// Bytes of an object's marks in a list: its bits and its number.
const MARKS_BYTES: usize = 3;
/// The number of an object that has none.
const NO_NUMBER: u16 = u16::MAX;

/// What was picked at one path.
#[derive(Clone, Debug, Default)]
pub(super) struct Slot {
    /// The JSON text that was kept last.
    pub(super) raw: Vec<u8>,
    pub(super) count: u64,
    pub(super) state: SlotState,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum SlotState {
    #[default]
    Empty,
    Taken,
    TooLong,
}

impl Slot {
    /// Adds a value to a list, if there is room.
    pub(super) fn push(&mut self, value: &[u8]) {
        if self.has_room(value.len() + 1) {
            self.raw.extend_from_slice(value);
            self.raw.push(NEXT);
        }
    }

    /// Adds the marks of an object to a list of such, if there is room.
    pub(super) fn push_marks(&mut self, marks: Marks) {
        if self.has_room(MARKS_BYTES) {
            let number = marks.number.map(u16::from).unwrap_or(NO_NUMBER);
            let [high, low] = number.to_be_bytes();
            self.raw.extend_from_slice(&[marks.bits, high, low]);
        }
    }

    /// Begins a list, unless it has begun, and makes room for so many bytes more; false if that is beyond the limit.
    fn has_room(&mut self, more: usize) -> bool {
        if self.state == SlotState::Empty {
            self.raw.clear();
            self.state = SlotState::Taken;
        }
        let room = self.raw.len() + more;
        if room > LIST_BYTES_MAX {
            return false;
        }
        if room > self.raw.capacity() {
            // By doubling, but never beyond the limit.
            let wanted = room.next_power_of_two().min(LIST_BYTES_MAX);
            self.raw.reserve_exact(wanted - self.raw.len());
        }
        true
    }
}

/// The marks of all objects of a list.
pub(super) fn each_marks(list: &[u8]) -> impl Iterator<Item = Marks> {
    let (objects, _) = list.as_chunks::<MARKS_BYTES>();
    objects.iter().map(|[bits, high, low]| Marks {
        bits: *bits,
        number: u8::try_from(u16::from_be_bytes([*high, *low])).ok(),
    })
}

/// The texts of all values of a list.
pub(super) fn each_text(list: &[u8]) -> impl Iterator<Item = Cow<'_, str>> {
    let values = list.split(|byte| *byte == NEXT).filter(|value| !value.is_empty());
    values.filter_map(text)
}

/// The string that a JSON text stands for, or the text of a number or boolean; `null` is nothing.
pub(super) fn text(raw: &[u8]) -> Option<Cow<'_, str>> {
    match raw {
        b"null" => None,
        [b'"', inner @ .., b'"'] if !inner.contains(&b'\\') => std::str::from_utf8(inner).ok().map(Cow::Borrowed),
        [b'"', ..] => serde_json::from_slice(raw).ok().map(Cow::Owned),
        _ => std::str::from_utf8(raw).ok().map(Cow::Borrowed),
    }
}

/// Puts `new` in the place of what a buffer holds; the buffer is used again, and is never larger than the largest it held.
pub(in crate::domain) fn replace(buffer: &mut Vec<u8>, new: &[u8]) {
    buffer.clear();
    buffer.reserve_exact(new.len());
    buffer.extend_from_slice(new);
}

/// The places of the bits that are set.
pub(super) fn bits(mut mask: PathBits) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let at = usize::try_from(mask.trailing_zeros()).ok().filter(|_| mask != 0)?;
        mask &= mask - 1;
        Some(at)
    })
}

/// Whether a scalar is `null`, `false`, an empty string or zero.
pub(super) fn says_nothing(scalar: &[u8]) -> bool {
    let is_zero = || scalar.iter().all(|byte| matches!(byte, b'0' | b'.' | b'-'));
    matches!(scalar, b"null" | b"false" | b"\"\"") || is_zero()
}
