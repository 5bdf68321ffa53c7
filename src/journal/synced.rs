//! How far the journal is on disk.

use crate::journal::position::Position;

/// How far the disk is known to hold what was recorded.
#[derive(Clone, Copy, Debug)]
pub(super) struct Synced {
    pub(super) to: Position,
    /// Between these the disk failed: what stands there may be lost.
    failed: Option<(Position, Position)>,
}

impl Synced {
    pub(super) fn up_to(to: Position) -> Self {
        Self { to, failed: None }
    }

    /// In front of it everything is decided.
    pub(super) fn to(&self) -> Position {
        self.to
    }

    /// Whether it is decided what became of a record.
    pub(super) fn knows(&self, position: Position) -> bool {
        position < self.to || self.failed(position)
    }

    /// Whether a record is on disk.
    pub(super) fn has(&self, position: Position) -> bool {
        position < self.to && !self.failed(position)
    }

    /// What stands between what is on disk and `end` may be lost.
    pub(super) fn lose(&mut self, end: Position) {
        // Ranges that touch become one; of others the last is remembered.
        let from = match self.failed {
            Some((from, to)) if to == self.to => from,
            Some(_) | None => self.to,
        };
        self.failed = Some((from, end));
        self.to = end;
    }

    fn failed(&self, position: Position) -> bool {
        self.failed.is_some_and(|(from, to)| from <= position && position < to)
    }
}
