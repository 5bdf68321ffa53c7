//! This node's contribution to the stability record: complete counts of an hour, published again whenever they have grown.

use crate::{
    domain::faults::stability::{Hour, NodeHourCounters},
    journal::{handle::Journal, position::Position},
};

impl Journal {
    /// The hours whose counters have grown since the last call, each in full, with the position of the last counted row. Pass
    /// the position to [`Journal::synced`] before publishing them, and to [`Journal::shares_told`] after it. After a start every
    /// hour has grown. Publish them even after [`crate::journal::JournalError::NotDurable`]: settlements are sent then, too.
    pub(crate) fn take_changed_shares(&self) -> (Vec<NodeHourCounters>, Position) {
        let mut state = self.engine.lock();
        let tallies = &mut state.contents.hourly_counts;
        (tallies.take_changed(), tallies.last().unwrap_or(Position::START))
    }

    /// All hours in memory: those of the segments that are kept, and at least those of the last 48 hours.
    pub(crate) fn shares(&self) -> Vec<NodeHourCounters> {
        self.engine.lock().contents.hourly_counts.shares()
    }

    /// Marks hours as not published: [`Journal::shares_changed`] returns them again.
    pub(crate) fn mark_unpublished(&self, hours: &[Hour]) {
        self.engine.lock().contents.hourly_counts.mark_changed(hours);
    }

    /// Marks everything up to a position from [`Journal::shares_changed`] as published, in every hour and including all earlier
    /// calls. Segments with unpublished rows are kept: without them, hours would be incomplete after a start.
    pub(crate) fn mark_published(&self, position: Position) {
        let mut state = self.engine.lock();
        let told = &mut state.contents.published;
        *told = position.max(*told);
    }
}
