//! The storage of a picked value.

use std::borrow::Cow;

use super::marks::ObjectMarks;
use super::path::{LIST_BYTES_MAX, PathBits};
use crate::domain::wire::plain_run::plain_run;

/// Separates the values of a list: the JSON text of a scalar cannot contain it.
const LIST_SEPARATOR: u8 = b'\n';
/// The length of an object's marks in a list: its bits and its number.
const MARKS_BYTES: usize = 3;
/// The number of an object without one.
const NO_NUMBER: u16 = u16::MAX;

/// The value picked at one path.
#[derive(Debug, Default)]
pub(super) struct PickSlot<'b> {
    /// The JSON text that was kept last: a copy, or a slice of a value that is complete in memory. Or a list.
    pub(super) raw: Cow<'b, [u8]>,
    pub(super) count: u64,
    pub(super) state: PickSlotState,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum PickSlotState {
    #[default]
    Empty,
    Taken,
    TooLong,
}

impl PickSlot<'_> {
    /// Appends a value to a list, if it fits.
    pub(super) fn push_value(&mut self, value: &[u8]) {
        if let Some(list) = self.list_with_room(value.len() + 1) {
            list.extend_from_slice(value);
            list.push(LIST_SEPARATOR);
        }
    }

    /// Appends the marks of an object to a list of marks, if they fit.
    pub(super) fn push_marks(&mut self, marks: ObjectMarks) {
        if let Some(list) = self.list_with_room(MARKS_BYTES) {
            let number = marks.number.map(u16::from).unwrap_or(NO_NUMBER);
            let [high, low] = number.to_be_bytes();
            list.extend_from_slice(&[marks.bits, high, low]);
        }
    }

    /// The list, with room for `more` bytes; `None` if they are beyond the limit. Begins the list if necessary.
    fn list_with_room(&mut self, more: usize) -> Option<&mut Vec<u8>> {
        let list = self.raw.to_mut();
        if self.state == PickSlotState::Empty {
            list.clear();
            self.state = PickSlotState::Taken;
        }
        let room = list.len() + more;
        if room > LIST_BYTES_MAX {
            return None;
        }
        if room > list.capacity() {
            // Doubles, but never exceeds the limit.
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
pub(super) fn list_marks(list: &[u8]) -> impl Iterator<Item = ObjectMarks> {
    let (objects, _) = list.as_chunks::<MARKS_BYTES>();
    objects.iter().map(|[bits, high, low]| ObjectMarks {
        bits: *bits,
        number: u8::try_from(u16::from_be_bytes([*high, *low])).ok(),
    })
}

/// The texts of all values of a list.
pub(super) fn list_texts(list: &[u8]) -> impl Iterator<Item = Cow<'_, str>> {
    let values = list
        .split(|byte| *byte == LIST_SEPARATOR)
        .filter(|value| !value.is_empty());
    values.filter_map(scalar_text)
}

/// The string that a JSON text denotes, or the text of a number or boolean; `None` for `null`.
pub(super) fn scalar_text(raw: &[u8]) -> Option<Cow<'_, str>> {
    match raw {
        b"null" => None,
        [b'"', inner @ .., b'"'] if plain_run(inner) == inner.len() => {
            std::str::from_utf8(inner).ok().map(Cow::Borrowed)
        }
        [b'"', ..] => serde_json::from_slice(raw).ok().map(Cow::Owned),
        _ => std::str::from_utf8(raw).ok().map(Cow::Borrowed),
    }
}

/// Whether the [`text`] of a JSON text is this one.
pub(super) fn has_scalar_text(raw: &[u8], text: &str) -> bool {
    match raw {
        b"null" => false,
        [b'"', inner @ .., b'"'] if !inner.contains(&b'\\') => inner == text.as_bytes(),
        [b'"', ..] => scalar_text(raw).is_some_and(|found| found == text),
        _ => raw == text.as_bytes(),
    }
}

/// Replaces a buffer's contents with `new`. The buffer is reused, and is never larger than its largest contents.
pub(in crate::domain) fn replace_bytes(buffer: &mut Vec<u8>, new: &[u8]) {
    buffer.clear();
    buffer.reserve_exact(new.len());
    buffer.extend_from_slice(new);
}

/// The indexes of the bits that are set.
pub(super) fn set_bits(mut mask: PathBits) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let at = usize::try_from(mask.trailing_zeros()).ok().filter(|_| mask != 0)?;
        mask &= mask - 1;
        Some(at)
    })
}

/// Whether a scalar's JSON text is `null`, `false`, an empty string or zero.
pub(super) fn is_blank(scalar: &[u8]) -> bool {
    let is_zero = || scalar.iter().all(|byte| matches!(byte, b'0' | b'.' | b'-'));
    matches!(scalar, b"null" | b"false" | b"\"\"") || is_zero()
}
