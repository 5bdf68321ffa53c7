//! The limits of a sink's batches, and the statistics of a sink's feeders.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use parking_lot::Mutex;

use crate::domain::{faults::stability::Hour, ledger::NodeId};

/// The maximum number of rows in a batch, and how long a batch waits for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchLimits {
    /// The maximum number of rows in a batch; at least 1. All rows of a batch are in memory together.
    pub rows_max: usize,
    /// When a batch with fewer rows is handed over.
    pub linger: Linger,
}

/// When a batch that has room for more rows is handed over all the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Linger {
    /// When this time has passed since the batch's first row was read.
    For(Duration),
    /// When the hour in which the batch's first row ended is over by this machine's clock, but at the latest when this time has
    /// passed since the first row was read. The batch has no rows of later hours.
    HourOr(Duration),
}

/// The time after the end of an hour, in milliseconds, after which a batch of the hour is complete. Rows that are read later are
/// in the next batch.
const HOUR_SLACK_MS: i64 = 60_000;
const HOUR_MS: i64 = 3_600_000;

impl BatchLimits {
    /// Returns whether a row that ended at `row_ms` can be in a batch whose first row ended at `first_ms`. Both are in
    /// milliseconds since the Unix epoch.
    pub(super) fn fits(&self, first_ms: i64, row_ms: i64) -> bool {
        match self.linger {
            Linger::For(_) => true,
            // A row of the previous hour that comes a little late fits too. A row that is further away does not, even if a clock
            // was wrong.
            Linger::HourOr(_) => {
                let (first, row) = (
                    Hour::from_unix_ms(first_ms).number(),
                    Hour::from_unix_ms(row_ms).number(),
                );
                (first - 1..=first).contains(&row)
            }
        }
    }

    /// Returns how long a batch may still wait for rows. Its first row ended at `first_ms` and was read `since` ago; `now_ms` is
    /// the current time.
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

/// The disorder of rows, in milliseconds. Rows are read in the order in which they were recorded, and a row ended at most this
/// much earlier than any row before it.
pub(super) const DISORDER_MS: i64 = 3_600_000;

/// The statistics of a sink's feeders: totals since the start of the process, and which rows of each lane the sink lacks now.
#[derive(Debug, Default)]
pub(crate) struct SinkStats {
    rows: AtomicU64,
    failures: AtomicU64,
    lacking: Mutex<BTreeMap<NodeId, SinkLag>>,
}

/// Which rows of a lane a sink lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SinkLag {
    Nothing,
    /// The sink lacks all rows from a certain row on. That row ended at this time, in milliseconds since the Unix epoch.
    Since(i64),
    /// Not known, because the sink has not reported its watermark. Contains the time at which the journal's oldest row ended, in
    /// milliseconds since the Unix epoch; `None` if the journal has no row or has not been read.
    Unknown(Option<i64>),
}

impl SinkLag {
    /// Returns the time at which the oldest row that the sink may lack ended. `None` if the sink lacks no row, or if no row is
    /// known.
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

    /// Records that the sink lacks the rows of a lane from one on that ended at `from_ms`. `None` means that the sink lacks no
    /// row.
    pub(super) fn set_lag(&self, node: &NodeId, from_ms: Option<i64>) {
        let lacking = from_ms.map_or(SinkLag::Nothing, SinkLag::Since);
        self.lacking.lock().insert(node.clone(), lacking);
    }

    /// Records that it is not known which rows of a lane the sink lacks. The lane's oldest row ended at `oldest_ms`; `None` if no
    /// row is known.
    pub(super) fn set_lag_unknown(&self, node: &NodeId, oldest_ms: Option<i64>) {
        self.lacking.lock().insert(node.clone(), SinkLag::Unknown(oldest_ms));
    }

    /// Returns whether it is known which rows of a lane the sink lacks.
    pub(super) fn is_lag_known(&self, node: &NodeId) -> bool {
        let lacking = self.lacking.lock().get(node).copied();
        lacking.is_some_and(|lacking| !matches!(lacking, SinkLag::Unknown(_)))
    }

    /// Removes a lane that this process no longer feeds.
    pub(super) fn remove_lane(&self, node: &NodeId) {
        self.lacking.lock().remove(node);
    }

    /// Returns the number of rows that the sink has acknowledged since the start of the process.
    pub(crate) fn rows(&self) -> u64 {
        self.rows.load(Ordering::Relaxed)
    }

    /// Returns how many calls of the sink have failed since the start of the process.
    pub(crate) fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }

    /// Returns the age of the oldest row of this process's lanes that the sink lacks, in milliseconds. Returns 0 if the sink
    /// lacks none. If it is not known which rows of a lane the sink lacks, this is the age of the lane's oldest row.
    pub(crate) fn behind_ms(&self, now_ms: i64) -> u64 {
        let lacking = self.lacking.lock();
        let oldest = lacking.values().filter_map(|lacking| lacking.oldest()).min();
        oldest.map_or(0, |oldest| u64::try_from(now_ms.saturating_sub(oldest)).unwrap_or(0))
    }

    /// Returns the time before which the sink has all rows of this process's lanes, in milliseconds since the Unix epoch. Returns
    /// [`i64::MIN`] if that is not known.
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
    use crate::sinks::contract::node;

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
