//! The storage of a picked value.

use std::borrow::Cow;

use super::marks::Marks;
use super::path::{LIST_BYTES_MAX, PathBits};
use crate::domain::wire::plain_run::plain_run;

/// Between the values of a list: no JSON text of a scalar has one.
const NEXT: u8 = b'\n';
/// Bytes of an object's marks in a list: its bits and its number.
const MARKS_BYTES: usize = 3;
/// The number of an object that has none.
const NO_NUMBER: u16 = u16::MAX;

/// What was picked at one path.
#[derive(Debug, Default)]
pub(super) struct Slot<'b> {
    /// The JSON text that was kept last: a copy, or where it stands in a value that is whole in memory. Or a list.
    pub(super) raw: Cow<'b, [u8]>,
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

impl Slot<'_> {
    /// Adds a value to a list, if there is room.
    pub(super) fn push(&mut self, value: &[u8]) {
        if let Some(list) = self.list_with_room(value.len() + 1) {
            list.extend_from_slice(value);
            list.push(NEXT);
        }
    }

    /// Adds the marks of an object to a list of such, if there is room.
    pub(super) fn push_marks(&mut self, marks: Marks) {
        if let Some(list) = self.list_with_room(MARKS_BYTES) {
            let number = marks.number.map(u16::from).unwrap_or(NO_NUMBER);
            let [high, low] = number.to_be_bytes();
            list.extend_from_slice(&[marks.bits, high, low]);
        }
    }

    /// The list, which begins unless it has begun, with room for so many bytes more; `None` if that is beyond the limit.
    fn list_with_room(&mut self, more: usize) -> Option<&mut Vec<u8>> {
        let list = self.raw.to_mut();
        if self.state == SlotState::Empty {
            list.clear();
            self.state = SlotState::Taken;
        }
        let room = list.len() + more;
        if room > LIST_BYTES_MAX {
            return None;
        }
        if room > list.capacity() {
            // By doubling, but never beyond the limit.
            let wanted = room.next_power_of_two().min(LIST_BYTES_MAX);
            list.reserve_exact(wanted - list.len());
        }
        Some(list)
    }

    /// The bytes of heap memory in use.
    pub(super) fn heap_bytes(&self) -> usize {
        match &self.raw {
            Cow::Owned(copy) => copy.capacity(),
            Cow::Borrowed(_) => 0,
        }
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
        [b'"', inner @ .., b'"'] if plain_run(inner) == inner.len() => {
            std::str::from_utf8(inner).ok().map(Cow::Borrowed)
        }
        [b'"', ..] => serde_json::from_slice(raw).ok().map(Cow::Owned),
        _ => std::str::from_utf8(raw).ok().map(Cow::Borrowed),
    }
}

/// Whether [`text`] is this one.
pub(super) fn is(raw: &[u8], text: &str) -> bool {
    match raw {
        b"null" => false,
        [b'"', inner @ .., b'"'] if !inner.contains(&b'\\') => inner == text.as_bytes(),
        [b'"', ..] => self::text(raw).is_some_and(|found| found == text),
        _ => raw == text.as_bytes(),
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
