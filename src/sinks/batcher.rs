//! The limits of a sink's batches, and the statistics of its feeders.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use parking_lot::Mutex;

use crate::domain::{faults::stability::Hour, ledger::NodeId};

/// The maximum size and age of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchLimits {
    /// The maximum number of rows; at least 1. They are in memory together.
    pub rows_max: usize,
    /// When a smaller batch is handed over.
    pub linger: Linger,
}

/// When a batch that could take more rows is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Linger {
    /// This long after its first row was read.
    For(Duration),
    /// When the hour in which its first row ended is over by this machine's clock, but at most this long after its first row was
    /// read. The batch has no rows of later hours.
    HourOr(Duration),
}

/// How long after its end an hour is complete. Later rows go into the next batch.
const HOUR_SLACK_MS: i64 = 60_000;
const HOUR_MS: i64 = 3_600_000;

impl BatchLimits {
    /// Whether a row that ended at `row_ms` may be in a batch whose first row ended at `first_ms`.
    pub(super) fn fits(&self, first_ms: i64, row_ms: i64) -> bool {
        match self.linger {
            Linger::For(_) => true,
            // A row that is a little late may be in it. If a clock was off by more, a batch still has one hour only.
            Linger::HourOr(_) => {
                let (first, row) = (
                    Hour::from_unix_ms(first_ms).number(),
                    Hour::from_unix_ms(row_ms).number(),
                );
                (first - 1..=first).contains(&row)
            }
        }
    }

    /// How long a batch may still wait for rows, if its first row ended at `first_ms` and was read `since` ago.
    pub(super) fn remaining_wait(&self, first_ms: i64, since: Duration, now_ms: i64) -> Duration {
        match self.linger {
            Linger::For(longest) => longest.saturating_sub(since),
            Linger::HourOr(longest) => {
                let complete = Hour::from_unix_ms(first_ms)
                    .number()
                    .saturating_add(1)
                    .saturating_mul(HOUR_MS)
                    + HOUR_SLACK_MS;
                let left = u64::try_from(complete.saturating_sub(now_ms)).unwrap_or(0);
                Duration::from_millis(left).min(longest.saturating_sub(since))
            }
        }
    }
}

/// Rows are read in the order in which they were recorded. A row may have ended at most this much earlier than one before it.
pub(super) const DISORDER_MS: i64 = 3_600_000;

/// Totals since the start of the process, and the current lag of each lane.
#[derive(Debug, Default)]
pub(crate) struct SinkStats {
    rows: AtomicU64,
    failures: AtomicU64,
    lacking: Mutex<BTreeMap<NodeId, SinkLag>>,
}

/// The rows of a lane that a sink lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SinkLag {
    Nothing,
    /// The rows from one onwards, which ended at this time.
    Since(i64),
    /// Unknown: the sink has not reported its watermark. The journal's oldest row ended at this time; `None` if it has no row, or
    /// has not been read.
    Unknown(Option<i64>),
}

impl SinkLag {
    /// When the oldest row that the sink may lack ended.
    fn oldest(self) -> Option<i64> {
        match self {
            Self::Nothing => None,
            Self::Since(ms) => Some(ms),
            Self::Unknown(oldest) => oldest,
        }
    }
}

impl SinkStats {
    pub(super) fn record_rows(&self, rows: usize) {
        self.rows.fetch_add(rows as u64, Ordering::Relaxed);
    }

    pub(super) fn record_failure(&self) {
        self.failures.fetch_add(1, Ordering::Relaxed);
    }

    /// Sets a lane's lag: the sink lacks the rows from one that ended at `from_ms`. `None` if it lacks none.
    pub(super) fn set_lag(&self, node: &NodeId, from_ms: Option<i64>) {
        let lacking = from_ms.map_or(SinkLag::Nothing, SinkLag::Since);
        self.lacking.lock().insert(node.clone(), lacking);
    }

    /// Sets a lane's lag to unknown. Its oldest row ended at `oldest_ms`; `None` if no row is known.
    pub(super) fn set_lag_unknown(&self, node: &NodeId, oldest_ms: Option<i64>) {
        self.lacking.lock().insert(node.clone(), SinkLag::Unknown(oldest_ms));
    }

    /// Whether a lane's lag is known.
    pub(super) fn is_lag_known(&self, node: &NodeId) -> bool {
        let lacking = self.lacking.lock().get(node).copied();
        lacking.is_some_and(|lacking| !matches!(lacking, SinkLag::Unknown(_)))
    }

    /// Removes a lane that this process no longer feeds.
    pub(super) fn remove_lane(&self, node: &NodeId) {
        self.lacking.lock().remove(node);
    }

    /// The number of rows that the sink has acknowledged.
    pub(crate) fn rows(&self) -> u64 {
        self.rows.load(Ordering::Relaxed)
    }

    /// How often the sink has refused, or could not be reached.
    pub(crate) fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }

    /// The age of the oldest row of this process's lanes that the sink lacks, in milliseconds; 0 if it lacks none. A lane whose
    /// lag is unknown counts as lacking entirely.
    pub(crate) fn behind_ms(&self, now_ms: i64) -> u64 {
        let lacking = self.lacking.lock();
        let oldest = lacking.values().filter_map(|lacking| lacking.oldest()).min();
        oldest.map_or(0, |oldest| u64::try_from(now_ms.saturating_sub(oldest)).unwrap_or(0))
    }

    /// The time before which the sink has all rows of this process's lanes; [`i64::MIN`] if that is not known.
    pub(crate) fn complete_before(&self, now_ms: i64) -> i64 {
        let lacking = self.lacking.lock();
        let oldest = lacking.values().filter_map(|lacking| match lacking {
            SinkLag::Unknown(_) => Some(i64::MIN),
            SinkLag::Nothing | SinkLag::Since(_) => lacking.oldest(),
        });
        oldest.min().unwrap_or(now_ms).min(now_ms).saturating_sub(DISORDER_MS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sinks::contract::samples::node;

    const HOURLY: BatchLimits = BatchLimits {
        rows_max: 10,
        linger: Linger::HourOr(Duration::from_secs(3660)),
    };

    #[test]
    fn an_hour_ends_with_the_first_row_of_another_one_but_for_those_that_are_late() {
        for (row_ms, taken) in [
            (0, true),
            (HOUR_MS - 1, true),
            (HOUR_MS, false),
            (-1, true),
            (-HOUR_MS - 1, false),
        ] {
            assert_eq!(HOURLY.fits(0, row_ms), taken, "{row_ms}");
        }
    }

    #[test]
    fn a_batch_waits_for_the_end_of_its_hour_and_never_longer_than_one_takes() {
        let left = |since, now_ms| HOURLY.remaining_wait(0, Duration::from_secs(since), now_ms).as_secs();
        assert_eq!(left(0, 0), 3660);
        assert_eq!(left(60, 60_000), 3600);
        assert_eq!(left(3660, 0), 0, "the clock stands still");
        assert_eq!(left(0, -86_400_000), 3660, "the clock is a day behind");
        assert_eq!(left(1, HOUR_MS + HOUR_SLACK_MS), 0);
        let soon = BatchLimits {
            linger: Linger::For(Duration::from_secs(2)),
            ..HOURLY
        };
        assert_eq!(
            soon.remaining_wait(0, Duration::from_secs(1), 0),
            Duration::from_secs(1)
        );
        assert_eq!(soon.remaining_wait(0, Duration::from_secs(3), 0), Duration::ZERO);
    }

    #[test]
    fn the_lane_that_is_furthest_behind_decides_what_is_complete() {
        let figures = SinkStats::default();
        let now = 100 * DISORDER_MS;
        assert_eq!(
            (figures.complete_before(now), figures.behind_ms(now)),
            (now - DISORDER_MS, 0)
        );
        figures.set_lag(&node(1), Some(now - 5));
        figures.set_lag(&node(2), Some(now - 50));
        figures.set_lag(&node(3), None);
        assert_eq!(
            (figures.complete_before(now), figures.behind_ms(now)),
            (now - 50 - DISORDER_MS, 50)
        );
        figures.remove_lane(&node(2));
        assert_eq!(figures.behind_ms(now), 5);
        figures.set_lag(&node(1), Some(now + 50));
        assert_eq!(
            (figures.complete_before(now), figures.behind_ms(now)),
            (now - DISORDER_MS, 0)
        );
    }

    #[test]
    fn a_lane_of_which_nothing_is_known_is_as_far_behind_as_its_oldest_row() {
        let figures = SinkStats::default();
        let now = 100 * DISORDER_MS;
        figures.set_lag_unknown(&node(1), None);
        assert_eq!((figures.complete_before(now), figures.behind_ms(now)), (i64::MIN, 0));
        figures.set_lag_unknown(&node(1), Some(now - 500));
        figures.set_lag(&node(2), Some(now - 5));
        assert_eq!((figures.complete_before(now), figures.behind_ms(now)), (i64::MIN, 500));
        assert_eq!(
            (figures.is_lag_known(&node(1)), figures.is_lag_known(&node(2))),
            (false, true)
        );
        figures.set_lag(&node(1), None);
        assert_eq!(figures.behind_ms(now), 5);
    }
}
