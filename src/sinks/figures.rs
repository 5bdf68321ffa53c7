//! What can be asked of a sink's feeders, of all lanes together.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicU64, Ordering},
};

use parking_lot::Mutex;

use crate::domain::ledger::NodeId;

/// Rows are read in the order in which they were recorded. One may have ended so much earlier than one before it, at most.
pub(super) const DISORDER_MS: i64 = 3_600_000;

/// Totals since the start of the process, and what is lacking now.
#[derive(Debug, Default)]
pub(crate) struct SinkFigures {
    rows: AtomicU64,
    failures: AtomicU64,
    lacking: Mutex<BTreeMap<NodeId, Lacking>>,
}

/// What a sink lacks of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lacking {
    Nothing,
    /// The rows from one on that ended then.
    From(i64),
    /// The sink has not said what it has. The oldest row that the journal has ended then; `None`: it has none, or has not been
    /// asked.
    PerhapsAll(Option<i64>),
}

impl Lacking {
    /// When the oldest row ended that may be lacking.
    fn oldest(self) -> Option<i64> {
        match self {
            Self::Nothing => None,
            Self::From(ms) => Some(ms),
            Self::PerhapsAll(oldest) => oldest,
        }
    }
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
        let lacking = from_ms.map_or(Lacking::Nothing, Lacking::From);
        self.lacking.lock().insert(node.clone(), lacking);
    }

    /// Nothing is known yet of what the sink has of a lane, whose oldest row ended then. `None`: it has no row, as far as is known.
    pub(super) fn may_lack_all(&self, node: &NodeId, oldest_ms: Option<i64>) {
        self.lacking.lock().insert(node.clone(), Lacking::PerhapsAll(oldest_ms));
    }

    /// Whether it is known what the sink has of a lane.
    pub(super) fn knows(&self, node: &NodeId) -> bool {
        let lacking = self.lacking.lock().get(node).copied();
        lacking.is_some_and(|lacking| !matches!(lacking, Lacking::PerhapsAll(_)))
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

    /// For how long the sink has lacked a row of this process's lanes, in milliseconds; 0 if it lacks none. As long as it has not said
    /// what it has of a lane, it counts as lacking all of it.
    pub(crate) fn behind_ms(&self, now_ms: i64) -> u64 {
        let lacking = self.lacking.lock();
        let oldest = lacking.values().filter_map(|lacking| lacking.oldest()).min();
        oldest.map_or(0, |oldest| u64::try_from(now_ms.saturating_sub(oldest)).unwrap_or(0))
    }

    /// The sink has all rows of this process's lanes that ended before this time; [`i64::MIN`]: that is not known.
    pub(crate) fn complete_before(&self, now_ms: i64) -> i64 {
        let lacking = self.lacking.lock();
        let oldest = lacking.values().filter_map(|lacking| match lacking {
            Lacking::PerhapsAll(_) => Some(i64::MIN),
            Lacking::Nothing | Lacking::From(_) => lacking.oldest(),
        });
        oldest.min().unwrap_or(now_ms).min(now_ms).saturating_sub(DISORDER_MS)
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

    #[test]
    fn a_lane_of_which_nothing_is_known_is_as_far_behind_as_its_oldest_row() {
        let figures = SinkFigures::default();
        let now = 100 * DISORDER_MS;
        figures.may_lack_all(&node(1), None);
        assert_eq!((figures.complete_before(now), figures.behind_ms(now)), (i64::MIN, 0));
        figures.may_lack_all(&node(1), Some(now - 500));
        figures.lacks(&node(2), Some(now - 5));
        assert_eq!((figures.complete_before(now), figures.behind_ms(now)), (i64::MIN, 500));
        assert_eq!((figures.knows(&node(1)), figures.knows(&node(2))), (false, true));
        figures.lacks(&node(1), None);
        assert_eq!(figures.behind_ms(now), 5);
    }
}
