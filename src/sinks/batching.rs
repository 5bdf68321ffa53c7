//! The limits of a sink's batches, and the statistics of its feeders.

use std::time::Duration;

use crate::domain::faults::stability::Hour;

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

#[cfg(test)]
mod tests {
    use super::*;

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
}
