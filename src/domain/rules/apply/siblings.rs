//! Handles the commas when members or elements are removed from an object or array.

use std::ops::Range;

/// What has been seen of one container.
#[derive(Default)]
pub(super) struct Siblings {
    /// The end of the last value.
    pub(super) last_end: Option<usize>,
    /// Whether one stays that was there before.
    any_kept: bool,
    /// The start of removed ones at the beginning: they go up to the first that stays.
    removed_from: Option<usize>,
}

impl Siblings {
    /// The next one begins; gives what has to be cut.
    pub(super) fn begin(&mut self, start: usize) -> Option<Range<usize>> {
        self.removed_from.take().map(|from| from..start)
    }

    /// One has been seen whole; gives what has to be cut.
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

    /// The container ends; gives what has to be cut.
    pub(super) fn close(&mut self) -> Option<Range<usize>> {
        self.removed_from
            .take()
            .zip(self.last_end)
            .map(|(start, end)| start..end)
    }
}
