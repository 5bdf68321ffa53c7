//! The demand of a key at its node: whether a lease is worthwhile, and how large it should be.

use std::time::{Duration, Instant};

use crate::domain::{
    ledger::lease::{RateUse, node::LeaseTarget},
    money::NanoUsd,
};

/// The length of a window of demand.
const WINDOW: Duration = Duration::from_secs(1);
/// How many windows a lease should last.
const WINDOWS_AHEAD: u32 = 2;

/// The demand of a key at its node in this window and in the one before: decides whether a lease is worthwhile, and its size.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Demand {
    began: Option<Instant>,
    now: DemandSample,
    before: DemandSample,
}

/// The requests of one window.
#[derive(Clone, Copy, Debug, Default)]
struct DemandSample {
    rated: RateUse,
    estimates: NanoUsd,
}

impl Demand {
    /// Records a request.
    pub(crate) fn record(&mut self, estimate: NanoUsd, tokens: u64, now: Instant) {
        self.roll_window(now);
        self.now.rated = self.now.rated.saturating_add(RateUse { requests: 1, tokens });
        self.now.estimates = self.now.estimates.saturating_add(estimate.max(NanoUsd::ZERO));
    }

    /// The number of requests in this window or the last, whichever had more.
    pub(crate) fn requests(&mut self, now: Instant) -> u64 {
        self.roll_window(now);
        self.now.rated.max(self.before.rated).requests
    }

    /// The part of a lease that should be free.
    pub(crate) fn target(&mut self, now: Instant) -> LeaseTarget {
        self.roll_window(now);
        let estimates = self.now.estimates.max(self.before.estimates);
        let rated = self.now.rated.max(self.before.rated);
        LeaseTarget {
            amount: NanoUsd::from_nanos(estimates.nanos().saturating_mul(i64::from(WINDOWS_AHEAD))),
            rated: RateUse {
                requests: rated.requests.saturating_mul(u64::from(WINDOWS_AHEAD)),
                tokens: rated.tokens.saturating_mul(u64::from(WINDOWS_AHEAD)),
            },
        }
    }

    fn roll_window(&mut self, now: Instant) {
        let Some(began) = self.began else {
            self.began = Some(now);
            return;
        };
        let since = now.saturating_duration_since(began);
        if since >= WINDOW {
            let is_next = since < WINDOW * 2;
            self.before = if is_next { self.now } else { DemandSample::default() };
            self.now = DemandSample::default();
            self.began = Some(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::edges::clock;

    #[test]
    fn demand_is_what_came_in_this_second_or_the_last() {
        let (mut demand, began) = (Demand::default(), clock::instant());
        let after = |ms| began + Duration::from_millis(ms);
        let wants = |demand: &mut Demand, ms| {
            let target = demand.target(after(ms));
            (
                demand.requests(after(ms)),
                target.amount.nanos(),
                target.rated.requests,
                target.rated.tokens,
            )
        };
        for at in [0, 100, 900] {
            demand.record(NanoUsd::from_nanos(10), 5, after(at));
        }
        assert_eq!(wants(&mut demand, 999), (3, 60, 6, 30));
        demand.record(NanoUsd::from_nanos(70), 1, after(1_000));
        assert_eq!(wants(&mut demand, 1_999), (3, 140, 6, 30));
        assert_eq!(demand.requests(after(2_500)), 1);
        assert_eq!(wants(&mut demand, 9_000), (0, 0, 0, 0));
    }
}
