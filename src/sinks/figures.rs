//! What can be asked of a sink's feeders, of all lanes together.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicU64, Ordering},
};

use parking_lot::Mutex;

use crate::domain::ledger::NodeId;

/// Rows are read in the order in which they were recorded. One may have ended so much earlier than one before it, at most.
const DISORDER_MS: i64 = 3_600_000;

/// Totals since the start of the process, and what is lacking now.
#[derive(Debug, Default)]
pub(crate) struct SinkFigures {
    rows: AtomicU64,
    failures: AtomicU64,
    /// When the first row ended that the sink lacks, by lane; `None` if it lacks none.
    lacking: Mutex<BTreeMap<NodeId, Option<i64>>>,
}

impl SinkFigures {
    pub(super) fn took(&self, rows: usize) {
        self.rows.fetch_add(rows as u64, Ordering::Relaxed);
    }

    pub(super) fn failed(&self) {
        self.failures.fetch_add(1, Ordering::Relaxed);
    }

    /// The sink lacks rows of a lane from one on that ended then; `None`: it lacks none.
    pub(super) fn lacks(&self, node: &NodeId, from_ms: Option<i64>) {
        self.lacking.lock().insert(node.clone(), from_ms);
    }

    /// Nothing is known yet of what the sink has of a lane.
    pub(super) fn may_lack_all(&self, node: &NodeId) {
        self.lacks(node, Some(i64::MIN));
    }

    /// The lane is not fed by this process any more.
    pub(super) fn left(&self, node: &NodeId) {
        self.lacking.lock().remove(node);
    }

    /// Rows that the sink has acknowledged.
    pub(crate) fn rows(&self) -> u64 {
        self.rows.load(Ordering::Relaxed)
    }

    /// How often it has refused, or could not be reached.
    pub(crate) fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }

    /// For how long the sink has lacked a row of this process's lanes, in milliseconds; 0 if it lacks none, or that is not known.
    pub(crate) fn behind_ms(&self, now_ms: i64) -> u64 {
        let oldest = self
            .lacking
            .lock()
            .values()
            .flatten()
            .copied()
            .filter(|ms| *ms > i64::MIN)
            .min();
        oldest.map_or(0, |oldest| u64::try_from(now_ms.saturating_sub(oldest)).unwrap_or(0))
    }

    /// The sink has all rows of this process's lanes that ended before this time.
    pub(crate) fn complete_before(&self, now_ms: i64) -> i64 {
        let oldest = self.lacking.lock().values().flatten().copied().min();
        oldest.unwrap_or(now_ms).min(now_ms).saturating_sub(DISORDER_MS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sinks::contract::samples::node;

    #[test]
    fn the_lane_that_is_furthest_behind_decides_what_is_complete() {
        let figures = SinkFigures::default();
        let now = 100 * DISORDER_MS;
        assert_eq!(
            (figures.complete_before(now), figures.behind_ms(now)),
            (now - DISORDER_MS, 0)
        );
        figures.lacks(&node(1), Some(now - 5));
        figures.lacks(&node(2), Some(now - 50));
        figures.lacks(&node(3), None);
        assert_eq!(
            (figures.complete_before(now), figures.behind_ms(now)),
            (now - 50 - DISORDER_MS, 50)
        );
        figures.left(&node(2));
        assert_eq!(figures.behind_ms(now), 5);
        figures.lacks(&node(1), Some(now + 50));
        assert_eq!(
            (figures.complete_before(now), figures.behind_ms(now)),
            (now - DISORDER_MS, 0)
        );
    }
}
