//! The store's clock, as estimated by this node. Records have the store's time, so all nodes agree on the day of a row, even if
//! their own clocks differ.

use std::{
    sync::atomic::{AtomicBool, AtomicI64, Ordering},
    time::{Duration, Instant},
};

use crate::{edges::clock, store::ledger::LedgerStore};

/// The maximum difference between this node's clock and the store's. A larger difference is logged as a warning.
pub(crate) const OFFSET_MAX: Duration = Duration::from_secs(30);
/// Maximum duration of a call that reads the store's time. The result of a longer call is not used, because it is too inexact.
const ANSWER_MAX: Duration = Duration::from_secs(1);
const UNKNOWN: i64 = i64::MIN;

/// The store's clock, estimated from its last reply and this node's monotonic clock.
#[derive(Debug)]
pub(crate) struct StoreTime {
    /// This node's monotonic clock at the start.
    began: Instant,
    /// The store's clock at the time `began`, in milliseconds since the Unix epoch; `UNKNOWN` before the store's first reply.
    origin_ms: AtomicI64,
    /// Whether the last logged message is a warning that this node's clock differs from the store's.
    is_logged: AtomicBool,
}

impl StoreTime {
    /// Creates an estimate. Until the store has replied, its clock is assumed to be equal to this node's.
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            began: now,
            origin_ms: AtomicI64::new(UNKNOWN),
            is_logged: AtomicBool::new(false),
        }
    }

    /// Records that the store's clock was `store_ms` at a moment between `asked` and `answered`.
    pub(crate) fn record(&self, store_ms: i64, asked: Instant, answered: Instant) {
        if answered.saturating_duration_since(asked) <= ANSWER_MAX {
            let origin = store_ms.saturating_sub(self.since_began(answered));
            self.origin_ms.store(origin, Ordering::Relaxed);
        }
    }

    /// Returns the store's time at the moment `now`, in milliseconds since the Unix epoch. While the store is unreachable, the
    /// estimate continues with this node's monotonic clock.
    pub(crate) fn now_ms(&self, now: Instant) -> i64 {
        match self.origin_ms.load(Ordering::Relaxed) {
            UNKNOWN => clock::unix_millis(),
            origin => origin.saturating_add(self.since_began(now)),
        }
    }

    /// Returns the store's time at the moment `now`, in seconds since the Unix epoch.
    pub(crate) fn now_seconds(&self, now: Instant) -> i64 {
        self.now_ms(now).div_euclid(1000)
    }

    /// Returns by how many milliseconds this node's clock is ahead of the store's; `None` until the store has replied.
    pub(crate) fn offset_ms(&self, now: Instant) -> Option<i64> {
        let is_known = self.origin_ms.load(Ordering::Relaxed) != UNKNOWN;
        is_known.then(|| clock::unix_millis().saturating_sub(self.now_ms(now)))
    }

    /// Reads the store's time. Logs when this node's clock begins to differ from the store's by more than [`OFFSET_MAX`], and
    /// when it no longer does.
    pub(crate) async fn sync(&self, ledger: &dyn LedgerStore) {
        let asked = clock::instant();
        match ledger.now_ms().await {
            Ok(store_ms) => self.record(store_ms, asked, clock::instant()),
            Err(error) => {
                tracing::debug!(%error, "cannot read the store's time");
                return;
            }
        }
        let Some(offset_ms) = self.offset_ms(clock::instant()) else {
            return;
        };
        let off = is_off(offset_ms);
        if self.is_logged.swap(off, Ordering::Relaxed) == off {
            return;
        }
        if off {
            tracing::warn!(
                ahead_seconds = offset_ms / 1000,
                "this node's clock differs from the store's clock; correct the clock that is wrong. weir uses the store's clock for the times in accounts, in rows of the log and in the stability record"
            );
        } else {
            tracing::info!("this node's clock agrees with the store's again");
        }
    }

    fn since_began(&self, now: Instant) -> i64 {
        let since = now.saturating_duration_since(self.began);
        i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
    }
}

/// Whether an offset is greater than [`OFFSET_MAX`].
pub(crate) fn is_off(offset_ms: i64) -> bool {
    u128::from(offset_ms.unsigned_abs()) > OFFSET_MAX.as_millis()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_goes_on_from_what_the_store_said_last() {
        let began = clock::instant();
        let time = StoreTime::new(began);
        assert_eq!(time.offset_ms(began), None);
        let at = |ms| began + Duration::from_millis(ms);
        time.record(1_000_000, at(50), at(60));
        assert_eq!(time.now_ms(at(60)), 1_000_000);
        assert_eq!(time.now_ms(at(90_060)), 1_090_000);
        // The store's clock was set back.
        time.record(500_000, at(100_000), at(100_001));
        assert_eq!(time.now_ms(at(100_002)), 500_001);
        assert!(time.offset_ms(at(100_002)).is_some_and(is_off));
    }

    #[test]
    fn an_answer_that_was_long_under_way_tells_no_time() {
        let began = clock::instant();
        let time = StoreTime::new(began);
        time.record(7, began, began + ANSWER_MAX + Duration::from_millis(1));
        assert_eq!(time.offset_ms(began), None);
        time.record(7, began, began + ANSWER_MAX);
        assert!(time.offset_ms(began + ANSWER_MAX).is_some());
    }

    #[test]
    fn a_clock_is_off_beyond_the_limit_on_either_side() {
        for (offset_ms, off) in [
            (0, false),
            (30_000, false),
            (-30_000, false),
            (30_001, true),
            (-30_001, true),
        ] {
            assert_eq!(is_off(offset_ms), off, "{offset_ms}");
        }
    }
}
