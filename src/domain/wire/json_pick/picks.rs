//! The values that a picker has picked out of one JSON value.

use std::borrow::Cow;

use super::path::{PATHS_MAX, PathBits, PathSet, PickLeaves, PickRule};
use crate::domain::wire::json_pick::path::ObjectMarks;
use crate::domain::wire::json_pick::path::{self, PickSlot, PickSlotState, set_bits};
use crate::domain::wire::{
    json_skip::without_end,
    usage::fields::{self, ReportField},
};

/// The number of slots to allocate at first. Few JSON values need more.
const SLOTS_USUAL: usize = 16;

/// The number of each path's slot, counted from 1; 0 if the path has no slot.
#[derive(Debug)]
struct SlotNumbers([u8; PATHS_MAX]);

impl Default for SlotNumbers {
    fn default() -> Self {
        Self([0; PATHS_MAX])
    }
}

/// The values picked out of one JSON value: copies, or slices of JSON that is completely in memory. A path is identified by its
/// index in the path set.
#[derive(Debug, Default)]
pub(crate) struct Picks<'b> {
    /// One slot for each path at which a value was found. Usually, only a few paths of the set have one.
    slots: Vec<PickSlot<'b>>,
    slot_numbers: SlotNumbers,
    takes: &'static [PickRule],
    /// The paths at which a value was found since the last `clear`, one bit for each.
    touched: PathBits,
    /// The marks of the object that is being read (see [`PickRule::Mark`]).
    marks: ObjectMarks,
    /// The fields of the last object at a path with [`PickRule::Fields`]. `fields_json` is the JSON text of that object.
    fields: Vec<ReportField<'b>>,
    fields_json: &'b [u8],
}

impl<'b> Picks<'b> {
    /// Allocates slots for a usual JSON value, unless they are already allocated.
    #[inline]
    pub(super) fn make_room(&mut self, set: &'static PathSet) {
        if self.takes.is_empty() {
            self.takes = set.takes();
            self.slots.reserve_exact(SLOTS_USUAL);
        }
    }

    /// Discards all picked values.
    pub(super) fn clear(&mut self) {
        self.marks = ObjectMarks::default();
        self.touched = 0;
        for slot in &mut self.slots {
            slot.state = PickSlotState::Empty;
            slot.count = 0;
        }
    }

    fn for_each_slot(
        &mut self,
        leaves: PathBits,
        mut change: impl FnMut(&mut PickSlot<'b>, PickRule, &mut ObjectMarks),
    ) {
        self.touched |= leaves;
        for at in set_bits(leaves) {
            let (Some(take), Some(place)) = (self.takes.get(at), self.slot_numbers.0.get_mut(at)) else {
                continue;
            };
            if *place == 0 {
                self.slots.push(PickSlot::default());
                *place = u8::try_from(self.slots.len()).unwrap_or(0);
            }
            if let Some(slot) = self.slots.get_mut(usize::from(*place).wrapping_sub(1)) {
                change(slot, *take, &mut self.marks);
            }
        }
    }

    /// Records for each of these paths that a value is present.
    pub(super) fn set_present(&mut self, leaves: PathBits) {
        self.for_each_slot(leaves, |slot, take, marks| {
            slot.state = PickSlotState::Taken;
            if let PickRule::MarkPresence { bits, .. } = take {
                marks.bits |= bits;
            }
        });
    }

    /// Adds 1 to the count of each of these paths.
    pub(super) fn count_each(&mut self, leaves: PathBits) {
        self.for_each_slot(leaves, |slot, _, _| slot.count = slot.count.saturating_add(1));
    }

    /// Handles the beginning of an object or array at which these paths end.
    pub(super) fn on_container_begin(&mut self, leaves: &PickLeaves) {
        self.count_each(leaves.count);
        self.touched |= leaves.presence;
        if leaves.marked != 0 {
            self.marks = ObjectMarks::default();
        }
    }

    /// Handles the end of an object or array. `leaves` are the paths that end at it and depend on its marks.
    pub(super) fn on_container_end(&mut self, leaves: PathBits) {
        let marks = self.marks;
        let fits = |at: &usize| match self.takes.get(*at) {
            Some(PickRule::CountMarked { all, none }) => marks.has_bits(*all, *none),
            _ => true,
        };
        let fitting = set_bits(leaves).filter(fits).fold(0, |fitting, at| fitting | (1 << at));
        self.for_each_slot(fitting, |slot, take, marks| match take {
            PickRule::ListMarked => slot.push_marks(*marks),
            _ => slot.count = slot.count.saturating_add(1),
        });
    }

    /// Applies the rule of each of these paths to a complete value. `keep` puts the value into a slot. If `too_long` is true, the
    /// value is longer than the limits of all these paths, and was not buffered.
    pub(super) fn store(
        &mut self,
        leaves: PathBits,
        json: &[u8],
        too_long: bool,
        mut keep: impl FnMut(&mut Cow<'b, [u8]>, &[u8]),
    ) {
        self.for_each_slot(leaves, |slot, take, marks| {
            let too_long = too_long || json.len() > take.bytes_max();
            match take {
                PickRule::Presence if too_long || !path::is_blank(json) => slot.state = PickSlotState::Taken,
                PickRule::MarkPresence { bits, none }
                    if too_long || !path::is_blank(json) && none.iter().all(|none| none.as_bytes() != json) =>
                {
                    slot.state = PickSlotState::Taken;
                    marks.bits |= bits;
                }
                PickRule::MarkNumber if !too_long => marks.set_number(json),
                PickRule::Presence
                | PickRule::MarkPresence { .. }
                | PickRule::MarkNumber
                | PickRule::Count
                | PickRule::CountMarked { .. }
                | PickRule::ListMarked
                | PickRule::Text => {}
                PickRule::CountBeginning(words) => {
                    let text = json.strip_prefix(b"\"").unwrap_or_default();
                    let is_one = words.iter().any(|word| text.starts_with(word.as_bytes()));
                    slot.count = slot.count.saturating_add(u64::from(is_one && !too_long));
                }
                PickRule::Mark { words, other } => marks.mark_word(words, other, json, too_long),
                PickRule::List if too_long => {}
                PickRule::List => slot.push_value(json),
                PickRule::Scalar | PickRule::Tree | PickRule::Fields(_) if too_long => {
                    slot.state = PickSlotState::TooLong
                }
                PickRule::Scalar | PickRule::Tree | PickRule::Fields(_) => {
                    keep(&mut slot.raw, json);
                    slot.state = PickSlotState::Taken;
                }
            }
        });
    }

    /// Reads the fields with these names from the object at the beginning of `text`, which is inside `outer` containers. Returns
    /// the text after the object; `None` if `text` does not begin with a readable object.
    pub(super) fn read_fields(&mut self, text: &'b [u8], names: &[&str], outer: usize) -> Option<&'b [u8]> {
        self.fields_json = &[];
        self.fields.clear();
        self.fields.resize(names.len(), ReportField::default());
        let behind = fields::read_object(text, outer, names, &mut self.fields)?;
        self.fields_json = Some(without_end(text, behind))
            .filter(|object| fields::is_utf8(object))
            .unwrap_or_default();
        Some(behind)
    }

    /// Applies the rule of each of these paths to a value that is completely in memory. The value is not copied.
    pub(super) fn store_borrowed(&mut self, leaves: PathBits, json: &'b [u8]) {
        self.store(leaves, json, false, |raw, _| *raw = Cow::Borrowed(json));
    }

    /// Returns the slot of this path; `None` if no value was found at the path.
    fn slot(&self, path: usize) -> Option<&PickSlot<'b>> {
        let place = *self.slot_numbers.0.get(path)?;
        self.slots.get(usize::from(place).wrapping_sub(1))
    }

    /// Returns the JSON text that was stored for this path; `None` if none was stored.
    pub(crate) fn raw(&self, path: usize) -> Option<&[u8]> {
        let slot = self.slot(path)?;
        (slot.state == PickSlotState::Taken).then_some(&*slot.raw)
    }

    /// Returns the fields of the object at this path, if they were read together with it (see [`PickRule::Fields`]). `None` if
    /// the object arrived in pieces or is missing.
    pub(in crate::domain) fn parsed_fields<const N: usize>(&self, path: usize) -> Option<[ReportField<'_>; N]> {
        // Empty slices are not objects, and different ones can have the same address.
        let is_same = !self.fields_json.is_empty() && std::ptr::eq(self.raw(path)?, self.fields_json);
        self.fields.first_chunk().filter(|_| is_same).copied()
    }

    /// Returns the fields of the object at this path, even if it arrived in pieces. `names` are the names in the path's rule.
    pub(in crate::domain) fn fields<const N: usize>(
        &self,
        path: usize,
        names: &[&str; N],
    ) -> Option<[ReportField<'_>; N]> {
        self.parsed_fields(path)
            .or_else(|| ReportField::from_json(self.raw(path)?).object(names))
    }

    /// Returns the text at this path: a string, or the text of a number or boolean. `None` if the value is `null` or missing.
    pub(crate) fn text(&self, path: usize) -> Option<Cow<'_, str>> {
        path::scalar_text(self.raw(path)?)
    }

    /// Returns all texts at this path: several for a [`PickRule::List`], otherwise the one that [`Self::text`] returns.
    pub(crate) fn each_text(&self, path: usize) -> impl Iterator<Item = Cow<'_, str>> {
        path::list_texts(self.raw(path).unwrap_or_default())
    }

    /// Returns the marks of each object at this path (see [`PickRule::ListMarked`]).
    pub(crate) fn each_marks(&self, path: usize) -> impl Iterator<Item = ObjectMarks> {
        path::list_marks(self.raw(path).unwrap_or_default())
    }

    /// Whether the text at this path, as [`Self::text`] returns it, is equal to `text`.
    pub(crate) fn has_text(&self, path: usize, text: &str) -> bool {
        self.raw(path).is_some_and(|raw| path::has_scalar_text(raw, text))
    }

    /// Whether a value is present at this path (see [`PickRule::Presence`]). For a path with another rule, whether a value was
    /// stored, was counted or was too long.
    pub(crate) fn is_present(&self, path: usize) -> bool {
        self.slot(path)
            .is_some_and(|slot| slot.state != PickSlotState::Empty || slot.count > 0)
    }

    /// Whether values were found only at the paths in `paths`. Paths with [`PickRule::Text`] are ignored.
    pub(crate) fn has_only(&self, paths: &[usize]) -> bool {
        let allowed = paths.iter().fold(0, |bits, path| bits | (1 << path));
        self.touched & !allowed == 0
    }

    /// Returns the number of values that were counted at this path.
    pub(crate) fn count(&self, path: usize) -> u64 {
        self.slot(path).map_or(0, |slot| slot.count)
    }

    /// Returns the number of bytes of heap memory in use. For each path, it is at most the limit of the path's rule.
    pub(super) fn heap_bytes(&self) -> usize {
        let kept: usize = self.slots.iter().map(PickSlot::heap_bytes).sum();
        self.slots.capacity() * size_of::<PickSlot<'_>>() + kept
    }
}
