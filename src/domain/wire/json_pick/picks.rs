//! What was picked of one value.

use std::borrow::Cow;

use super::marks::Marks;
use super::path::{Leaves, PATHS_MAX, PathBits, PathSet, Take};
use super::slot::{self, Slot, SlotState, bits};
use crate::domain::wire::{
    json_skip::before,
    usage::fields::{self, Field},
};

/// Paths of which a value usually has something.
const SLOTS_USUAL: usize = 16;

/// See [`Picks`]. All zero at first.
#[derive(Debug)]
struct Places([u8; PATHS_MAX]);

impl Default for Places {
    fn default() -> Self {
        Self([0; PATHS_MAX])
    }
}

/// What was picked of one value: copies of what it said, or, if it is whole in memory, places in it. Paths are named by their
/// place in their set.
#[derive(Debug, Default)]
pub(crate) struct Picks<'b> {
    /// Of the paths at which something was seen: few of those of a set.
    slots: Vec<Slot<'b>>,
    /// Of each path the number of its slot, counted from one; zero if it has none.
    places: Places,
    takes: &'static [Take],
    /// The slots that have to be cleared before the next value.
    touched: PathBits,
    /// The marks of the object that is being read and is counted by them.
    marks: Marks,
    /// The fields of the last object that was read for them, and where it stands.
    fields: Vec<Field<'b>>,
    fields_of: &'b [u8],
}

impl<'b> Picks<'b> {
    /// Gets room for what most values have of a set's paths, unless it is there.
    #[inline]
    pub(super) fn make_room(&mut self, set: &'static PathSet) {
        if self.takes.is_empty() {
            self.takes = set.takes();
            self.slots.reserve_exact(SLOTS_USUAL);
        }
    }

    /// Forgets what was picked.
    pub(super) fn clear(&mut self) {
        self.marks = Marks::default();
        self.touched = 0;
        for slot in &mut self.slots {
            slot.state = SlotState::Empty;
            slot.count = 0;
        }
    }

    fn each(&mut self, leaves: PathBits, mut change: impl FnMut(&mut Slot<'b>, Take, &mut Marks)) {
        self.touched |= leaves;
        for at in bits(leaves) {
            let (Some(take), Some(place)) = (self.takes.get(at), self.places.0.get_mut(at)) else {
                continue;
            };
            if *place == 0 {
                self.slots.push(Slot::default());
                *place = u8::try_from(self.slots.len()).unwrap_or(0);
            }
            if let Some(slot) = self.slots.get_mut(usize::from(*place).wrapping_sub(1)) {
                change(slot, *take, &mut self.marks);
            }
        }
    }

    /// Notes at each of these paths that something was there.
    pub(super) fn take_each(&mut self, leaves: PathBits) {
        self.each(leaves, |slot, take, marks| {
            slot.state = SlotState::Taken;
            if let Take::MarkPresence { bits, .. } = take {
                marks.bits |= bits;
            }
        });
    }

    /// Counts a value at each of these paths.
    pub(super) fn count_each(&mut self, leaves: PathBits) {
        self.each(leaves, |slot, _, _| slot.count = slot.count.saturating_add(1));
    }

    /// An object or array begins, at which these paths end.
    pub(super) fn open(&mut self, leaves: &Leaves) {
        self.count_each(leaves.count);
        self.touched |= leaves.presence;
        if leaves.marked != 0 {
            self.marks = Marks::default();
        }
    }

    /// An object or array has ended at which these paths end that look at its marks.
    pub(super) fn end_marked(&mut self, leaves: PathBits) {
        let marks = self.marks;
        let fits = |at: &usize| match self.takes.get(*at) {
            Some(Take::CountMarked { all, none }) => marks.fit(*all, *none),
            _ => true,
        };
        let fitting = bits(leaves).filter(fits).fold(0, |fitting, at| fitting | (1 << at));
        self.each(fitting, |slot, take, marks| match take {
            Take::ListMarked => slot.push_marks(*marks),
            _ => slot.count = slot.count.saturating_add(1),
        });
    }

    /// Takes a whole value in at each of these paths; `keep` puts it into a slot. One that is `too_long` for all of them has not
    /// been kept.
    pub(super) fn store(
        &mut self,
        leaves: PathBits,
        json: &[u8],
        too_long: bool,
        mut keep: impl FnMut(&mut Cow<'b, [u8]>, &[u8]),
    ) {
        self.each(leaves, |slot, take, marks| {
            let too_long = too_long || json.len() > take.limit();
            match take {
                Take::Presence if too_long || !slot::says_nothing(json) => slot.state = SlotState::Taken,
                Take::MarkPresence { bits, none }
                    if too_long || !slot::says_nothing(json) && none.iter().all(|none| none.as_bytes() != json) =>
                {
                    slot.state = SlotState::Taken;
                    marks.bits |= bits;
                }
                Take::MarkNumber if !too_long => marks.number(json),
                Take::Presence
                | Take::MarkPresence { .. }
                | Take::MarkNumber
                | Take::Count
                | Take::CountMarked { .. }
                | Take::ListMarked
                | Take::Text => {}
                Take::CountBeginning(words) => {
                    let text = json.strip_prefix(b"\"").unwrap_or_default();
                    let is_one = words.iter().any(|word| text.starts_with(word.as_bytes()));
                    slot.count = slot.count.saturating_add(u64::from(is_one && !too_long));
                }
                Take::Mark { words, other } => marks.see(words, other, json, too_long),
                Take::List if too_long => {}
                Take::List => slot.push(json),
                Take::Scalar | Take::Tree | Take::Fields(_) if too_long => slot.state = SlotState::TooLong,
                Take::Scalar | Take::Tree | Take::Fields(_) => {
                    keep(&mut slot.raw, json);
                    slot.state = SlotState::Taken;
                }
            }
        });
    }

    /// Reads the fields of the object that a text begins with, inside `outer` containers; returns what follows it. `None` if it
    /// begins with none, or one that cannot be read.
    pub(super) fn read_fields(&mut self, text: &'b [u8], names: &[&str], outer: usize) -> Option<&'b [u8]> {
        self.fields_of = &[];
        self.fields.clear();
        self.fields.resize(names.len(), Field::default());
        let behind = fields::read_object(text, outer, names, &mut self.fields)?;
        self.fields_of = Some(before(text, behind))
            .filter(|object| fields::is_text(object))
            .unwrap_or_default();
        Some(behind)
    }

    /// Takes in a value that is whole in memory.
    pub(super) fn borrow(&mut self, leaves: PathBits, json: &'b [u8]) {
        self.store(leaves, json, false, |raw, _| *raw = Cow::Borrowed(json));
    }

    /// What was seen at this path.
    fn slot(&self, path: usize) -> Option<&Slot<'b>> {
        let place = *self.places.0.get(path)?;
        self.slots.get(usize::from(place).wrapping_sub(1))
    }

    /// The JSON text of what was kept at this path.
    pub(crate) fn raw(&self, path: usize) -> Option<&[u8]> {
        let slot = self.slot(path)?;
        (slot.state == SlotState::Taken).then_some(&*slot.raw)
    }

    /// The fields of the object kept at this path, which were read as it was found (see [`Take::Fields`]); `None` if it came in
    /// pieces, or there is none.
    pub(in crate::domain) fn fields_read<const N: usize>(&self, path: usize) -> Option<[Field<'_>; N]> {
        // Empty texts are at the same place, and none is an object.
        let is_same = !self.fields_of.is_empty() && std::ptr::eq(self.raw(path)?, self.fields_of);
        self.fields.first_chunk().filter(|_| is_same).copied()
    }

    /// The same, whether it came in pieces or not; the names are those of the path.
    pub(in crate::domain) fn fields<const N: usize>(&self, path: usize, names: &[&str; N]) -> Option<[Field<'_>; N]> {
        self.fields_read(path)
            .or_else(|| Field::of(self.raw(path)?).object(names))
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
        self.raw(path).is_some_and(|raw| slot::is(raw, text))
    }

    /// Whether something was seen at this path (see `Take::Presence`); for other takes, whether something was kept or was too long.
    pub(crate) fn is_present(&self, path: usize) -> bool {
        self.slot(path)
            .is_some_and(|slot| slot.state != SlotState::Empty || slot.count > 0)
    }

    /// Whether nothing was seen at any path but these and those that are listened to.
    pub(crate) fn has_only(&self, paths: &[usize]) -> bool {
        let allowed = paths.iter().fold(0, |bits, path| bits | (1 << path));
        self.touched & !allowed == 0
    }

    /// What was counted at this path.
    pub(crate) fn count(&self, path: usize) -> u64 {
        self.slot(path).map_or(0, |slot| slot.count)
    }

    /// The bytes of heap memory in use: at most one limit per path.
    pub(super) fn heap_bytes(&self) -> usize {
        let kept: usize = self.slots.iter().map(Slot::heap_bytes).sum();
        self.slots.capacity() * size_of::<Slot<'_>>() + kept
    }
}
