//! Decides what may be removed after its retention period, without relying on the clock alone.
//!
//! A clock that jumps ahead makes everything look old. So the last removal is remembered, and each run removes at most one day
//! more than the run before, whatever the clock says. Two runs are at least [`RUN_INTERVAL_MS`] apart, so retention catches up
//! day by day after days without a run. Only an operator can have more removed, by a shorter period or by naming a day.

use serde::{Deserialize, Serialize};

const DAY_MS: i64 = 24 * 3600 * 1000;
/// The minimum interval between two runs by the clock, in milliseconds: half a day.
pub(crate) const RUN_INTERVAL_MS: i64 = DAY_MS / 2;

/// The progress of retention. Days are in UTC, counted from the Unix epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RetentionProgress {
    /// The first day that is retained.
    pub kept_from: i64,
    /// The time at which `kept_from` was last set, by the clock of that time, in milliseconds since the Unix epoch.
    pub ran_ms: i64,
    /// The retention period in days.
    pub keep_days: i64,
}

impl RetentionProgress {
    /// Returns the progress of the first run. `oldest` is the day of the oldest existing item; `None` if there is none.
    pub(crate) fn first_run(now_ms: i64, keep_days: i64, oldest: Option<i64>) -> Self {
        let wanted = first_day_by_clock(now_ms, keep_days);
        Self {
            kept_from: oldest.unwrap_or(wanted).min(wanted),
            ran_ms: now_ms,
            keep_days,
        }
    }

    /// Returns the progress after an operator's order to remove everything before a day.
    pub(crate) fn forced_until(day: i64, now_ms: i64, keep_days: i64) -> Self {
        Self {
            kept_from: day,
            ran_ms: now_ms,
            keep_days,
        }
    }

    /// Returns the progress after the next run. If no run is due, only a changed period takes effect.
    #[must_use]
    pub(crate) fn next_run(self, now_ms: i64, keep_days: i64, oldest: Option<i64>) -> Self {
        let wanted = first_day_by_clock(now_ms, keep_days);
        let shorter = self.keep_days.saturating_sub(keep_days).max(0);
        let kept_from = self.kept_from.saturating_add(shorter);
        // When the oldest thing was created, things older than the period could already be removed.
        let floor = oldest.map_or(wanted, |oldest| oldest.saturating_sub(keep_days));
        let since = now_ms.saturating_sub(self.ran_ms);
        if since < 0 {
            // The clock was ahead before, or is behind now. So what the current clock retains is retained again.
            return Self {
                kept_from: kept_from.min(wanted.max(floor)),
                ran_ms: now_ms,
                keep_days,
            };
        }
        if since < RUN_INTERVAL_MS {
            return Self {
                kept_from,
                keep_days,
                ..self
            };
        }
        let from = kept_from.max(floor);
        Self {
            kept_from: from.max(wanted.min(from.saturating_add(1))),
            ran_ms: now_ms,
            keep_days,
        }
    }

    /// Returns the first day to retain. Everything earlier may be removed.
    pub(crate) fn first_kept(self, now_ms: i64) -> i64 {
        self.kept_from.min(first_day_by_clock(now_ms, self.keep_days))
    }

    /// Returns how many more days are retained than the period requires by the clock.
    pub(crate) fn days_behind(self, now_ms: i64) -> i64 {
        first_day_by_clock(now_ms, self.keep_days)
            .saturating_sub(self.kept_from)
            .max(0)
    }
}

/// Returns the first day to retain by the clock alone.
fn first_day_by_clock(now_ms: i64, keep_days: i64) -> i64 {
    now_ms.div_euclid(DAY_MS).saturating_sub(keep_days)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TODAY: i64 = 20_000;
    const KEEP: i64 = 180;

    fn noon(day: i64) -> i64 {
        day * DAY_MS + DAY_MS / 2
    }

    fn begun(oldest: Option<i64>) -> RetentionProgress {
        RetentionProgress::first_run(noon(TODAY), KEEP, oldest)
    }

    #[test]
    fn day_by_day_it_follows_the_clock() {
        let oldest = Some(TODAY - KEEP);
        let mut retention = begun(oldest);
        for day in TODAY..TODAY + 300 {
            retention = retention.next_run(noon(day), KEEP, oldest);
            assert_eq!(retention.first_kept(noon(day)), day - KEEP);
            assert_eq!(retention.days_behind(noon(day)), 0);
        }
    }

    #[test]
    fn a_clock_that_jumps_ahead_costs_one_day_however_often_it_starts() {
        for oldest in [TODAY - KEEP, TODAY - 3, TODAY] {
            let mut retention = begun(Some(oldest));
            let before = retention.first_kept(noon(TODAY));
            for _ in 0..50 {
                retention = retention.next_run(noon(TODAY + 200), KEEP, Some(oldest));
                assert!(retention.first_kept(noon(TODAY + 200)) <= before + 1);
            }
            // It is set right again.
            for _ in 0..50 {
                retention = retention.next_run(noon(TODAY), KEEP, Some(oldest));
                assert_eq!(retention.first_kept(noon(TODAY)), TODAY - KEEP);
            }
        }
    }

    #[test]
    fn what_was_missed_is_caught_up_with_by_a_day_a_day() {
        let oldest = Some(TODAY - KEEP);
        let mut retention = begun(oldest);
        let mut now = noon(TODAY + 30);
        for _ in 0..60 {
            retention = retention.next_run(now, KEEP, oldest);
            now += RUN_INTERVAL_MS;
        }
        assert_eq!(retention.days_behind(now), 0);
    }

    #[test]
    fn a_store_that_was_made_by_a_wrong_clock_loses_nothing_when_that_is_set_right() {
        for wrong in [noon(TODAY + 200), 0] {
            let mut retention = RetentionProgress::first_run(wrong, KEEP, None);
            for now in [noon(TODAY), noon(TODAY) + RUN_INTERVAL_MS, noon(TODAY + 200)] {
                retention = retention.next_run(now, KEEP, Some(TODAY));
                assert!(retention.first_kept(now) <= TODAY - KEEP + 2, "{retention:?}");
            }
            // It does not stay behind for as long as the clock was wrong.
            let retention = retention.next_run(noon(TODAY + 1), KEEP, Some(TODAY));
            let retention = retention.next_run(noon(TODAY + 2), KEEP, Some(TODAY));
            assert!(retention.days_behind(noon(TODAY + 2)) <= 2, "{retention:?}");
        }
    }

    #[test]
    fn a_shorter_time_holds_at_once() {
        let retention = begun(Some(TODAY - KEEP));
        let shorter = retention.next_run(noon(TODAY), 30, Some(TODAY - KEEP));
        assert_eq!(shorter.first_kept(noon(TODAY)), TODAY - 30);
        let longer = shorter.next_run(noon(TODAY), KEEP, Some(TODAY - 30));
        assert_eq!(longer.first_kept(noon(TODAY)), TODAY - KEEP);
    }

    proptest! {
        #[test]
        fn no_run_removes_more_than_one_day_more(clocks in prop::collection::vec(0..60_000i64, 1..60), oldest in 19_000..20_001i64) {
            let mut retention = begun(Some(oldest));
            let mut removed_to = retention.first_kept(noon(TODAY));
            for day in clocks {
                let now = noon(day);
                retention = retention.next_run(now, KEEP, Some(oldest.max(removed_to)));
                let next = retention.first_kept(now);
                prop_assert!(next <= removed_to.max(oldest - KEEP) + 1, "{} after {}", next, removed_to);
                removed_to = removed_to.max(next);
            }
        }
    }
}
