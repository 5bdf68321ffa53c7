//! What a picker has picked.

use std::borrow::Cow;

use super::slot::{self, Slot, SlotState};
use super::{Marks, Picker};

impl Picker {
    /// The JSON text of what was kept at this path.
    pub(crate) fn raw(&self, path: usize) -> Option<&[u8]> {
        let slot = self.slots.get(path)?;
        (slot.state == SlotState::Taken).then_some(slot.raw.as_slice())
    }

    /// The string kept at this path, or the text of the number or boolean; `null` is nothing.
    pub(crate) fn text(&self, path: usize) -> Option<Cow<'_, str>> {
        slot::text(self.raw(path)?)
    }

    /// As [`Self::text`], all that were kept at this path: several where it is a `Take::List`.
    pub(crate) fn each_text(&self, path: usize) -> impl Iterator<Item = Cow<'_, str>> {
        slot::each_text(self.raw(path).unwrap_or_default())
    }

    /// The marks of all objects at this path (see `Take::ListMarked`).
    pub(crate) fn each_marks(&self, path: usize) -> impl Iterator<Item = Marks> {
        slot::each_marks(self.raw(path).unwrap_or_default())
    }

    /// Whether the string kept at this path is this one.
    pub(crate) fn is(&self, path: usize, text: &str) -> bool {
        self.text(path).is_some_and(|found| found == text)
    }

    /// Whether something was seen at this path (see `Take::Presence`); for other takes, whether something was kept or was too long.
    pub(crate) fn is_present(&self, path: usize) -> bool {
        self.slots
            .get(path)
            .is_some_and(|slot| slot.state != SlotState::Empty || slot.count > 0)
    }

    /// Whether nothing was seen at any path but these and those that are listened to.
    pub(crate) fn has_only(&self, paths: &[usize]) -> bool {
        let allowed = paths.iter().fold(0, |bits, path| bits | (1 << path));
        self.touched & !allowed == 0
    }

    /// What was counted at this path.
    pub(crate) fn count(&self, path: usize) -> u64 {
        self.slots.get(path).map_or(0, |slot| slot.count)
    }

    /// The bytes of heap memory in use: at most one limit per path, and twice that while a value is being kept.
    pub(crate) fn heap_bytes(&self) -> usize {
        let of_slot = |slot: &Slot| slot.raw.capacity() + size_of::<Slot>();
        self.scratch.capacity() + self.slots.iter().map(of_slot).sum::<usize>()
    }
}
