//! The extent of the journal that is on disk.

use crate::journal::position::Position;

/// The extent of the journal that is known to be on disk.
#[derive(Clone, Copy, Debug)]
pub(super) struct Synced {
    pub(super) decided_end: Position,
    /// The range in which the disk failed: its records may be lost.
    lost: Option<(Position, Position)>,
}

impl Synced {
    pub(super) fn up_to(decided_end: Position) -> Self {
        Self {
            decided_end,
            lost: None,
        }
    }

    /// Every record before this position is either on disk or counted as lost.
    pub(super) fn decided_end(&self) -> Position {
        self.decided_end
    }

    /// Whether a record is either on disk or counted as lost.
    pub(super) fn is_decided(&self, position: Position) -> bool {
        position < self.decided_end || self.is_lost(position)
    }

    /// Whether a record is on disk.
    pub(super) fn is_on_disk(&self, position: Position) -> bool {
        position < self.decided_end && !self.is_lost(position)
    }

    /// Counts everything from the last synced position to `end` as lost.
    pub(super) fn mark_lost(&mut self, end: Position) {
        // Adjacent ranges are merged; otherwise only the last one is remembered.
        let from = match self.lost {
            Some((from, to)) if to == self.decided_end => from,
            Some(_) | None => self.decided_end,
        };
        self.lost = Some((from, end));
        self.decided_end = end;
    }

    fn is_lost(&self, position: Position) -> bool {
        self.lost.is_some_and(|(from, to)| from <= position && position < to)
    }
}
