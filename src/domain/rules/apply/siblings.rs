//! Finds the commas to remove along with members of an object or elements of an array.

use std::ops::Range;

/// The walked part of an object or array. It finds the commas to remove along with members or elements.
#[derive(Default)]
pub(super) struct Siblings {
    /// The end of the last value.
    pub(super) last_end: Option<usize>,
    /// Whether a sibling before the current one is kept.
    any_kept: bool,
    /// The start of the leading siblings that are removed; the cut reaches up to the first sibling that is kept.
    removed_from: Option<usize>,
}

impl Siblings {
    /// The next sibling begins; returns the range to cut.
    pub(super) fn begin(&mut self, start: usize) -> Option<Range<usize>> {
        self.removed_from.take().map(|from| from..start)
    }

    /// A sibling has ended; returns the range to cut.
    pub(super) fn end(&mut self, place: Range<usize>, is_removed: bool) -> Option<Range<usize>> {
        let previous_end = self.last_end.replace(place.end);
        if !is_removed {
            self.any_kept = true;
            return None;
        }
        match previous_end {
            Some(end) if self.any_kept => Some(end..place.end),
            Some(_) | None => {
                self.removed_from = Some(place.start);
                None
            }
        }
    }

    /// The container ends; returns the range to cut.
    pub(super) fn close(&mut self) -> Option<Range<usize>> {
        self.removed_from
            .take()
            .zip(self.last_end)
            .map(|(start, end)| start..end)
    }
}
