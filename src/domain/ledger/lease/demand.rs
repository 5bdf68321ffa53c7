//! How much a key asks for, as its node sees it: from when on a lease pays, and how large it should be.

use std::time::{Duration, Instant};

use crate::domain::{
    ledger::lease::{Rated, node::Target},
    money::NanoUsd,
};

/// What is counted together.
const WINDOW: Duration = Duration::from_secs(1);
/// For how many windows a lease should last.
const WINDOWS_AHEAD: u32 = 2;

/// What a key has asked for in this window and in the one before.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Demand {
    began: Option<Instant>,
    now: Asked,
    before: Asked,
}

#[derive(Clone, Copy, Debug, Default)]
struct Asked {
    rated: Rated,
    estimates: NanoUsd,
}

impl Demand {
    /// A request comes.
    pub(crate) fn note(&mut self, estimate: NanoUsd, tokens: u64, now: Instant) {
        self.turn(now);
        self.now.rated = self.now.rated.plus(Rated { requests: 1, tokens });
        self.now.estimates = self.now.estimates.saturating_add(estimate.max(NanoUsd::ZERO));
    }

    /// How many requests came in a window: in this one or the last, whichever had more.
    pub(crate) fn requests(&mut self, now: Instant) -> u64 {
        self.turn(now);
        self.now.rated.max(self.before.rated).requests
    }

    /// What a lease should have free.
    pub(crate) fn target(&mut self, now: Instant) -> Target {
        self.turn(now);
        let estimates = self.now.estimates.max(self.before.estimates);
        let rated = self.now.rated.max(self.before.rated);
        Target {
            amount: NanoUsd::from_nanos(estimates.nanos().saturating_mul(i64::from(WINDOWS_AHEAD))),
            rated: Rated {
                requests: rated.requests.saturating_mul(u64::from(WINDOWS_AHEAD)),
                tokens: rated.tokens.saturating_mul(u64::from(WINDOWS_AHEAD)),
            },
        }
    }

    fn turn(&mut self, now: Instant) {
        let Some(began) = self.began else {
            self.began = Some(now);
            return;
        };
        let since = now.saturating_duration_since(began);
        if since >= WINDOW {
            let is_next = since < WINDOW * 2;
            self.before = if is_next { self.now } else { Asked::default() };
            self.now = Asked::default();
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
            demand.note(NanoUsd::from_nanos(10), 5, after(at));
        }
        assert_eq!(wants(&mut demand, 999), (3, 60, 6, 30));
        demand.note(NanoUsd::from_nanos(70), 1, after(1_000));
        assert_eq!(wants(&mut demand, 1_999), (3, 140, 6, 30));
        assert_eq!(demand.requests(after(2_500)), 1);
        assert_eq!(wants(&mut demand, 9_000), (0, 0, 0, 0));
    }
}
