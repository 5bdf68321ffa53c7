//! How much a key asks for, as its node sees it: from when on a lease pays, and how large it should be.

use std::time::{Duration, Instant};

use crate::domain::money::NanoUsd;

/// What is counted together.
const WINDOW: Duration = Duration::from_secs(1);
/// For how many windows a lease should last.
const WINDOWS_AHEAD: i64 = 2;

/// What a key has asked for in this window and in the one before.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Demand {
    began: Option<Instant>,
    now: Asked,
    before: Asked,
}

#[derive(Clone, Copy, Debug, Default)]
struct Asked {
    requests: u64,
    estimates: NanoUsd,
}

impl Demand {
    /// A request comes.
    pub(crate) fn note(&mut self, estimate: NanoUsd, now: Instant) {
        self.turn(now);
        self.now.requests += 1;
        self.now.estimates = self.now.estimates.saturating_add(estimate.max(NanoUsd::ZERO));
    }

    /// How many requests came in a window: in this one or the last, whichever had more.
    pub(crate) fn requests(&mut self, now: Instant) -> u64 {
        self.turn(now);
        self.now.requests.max(self.before.requests)
    }

    /// What a lease should have free.
    pub(crate) fn target(&mut self, now: Instant) -> NanoUsd {
        self.turn(now);
        let most = self.now.estimates.max(self.before.estimates);
        NanoUsd::from_nanos(most.nanos().saturating_mul(WINDOWS_AHEAD))
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
        for at in [0, 100, 900] {
            demand.note(NanoUsd::from_nanos(10), after(at));
        }
        assert_eq!(
            (demand.requests(after(999)), demand.target(after(999)).nanos()),
            (3, 60)
        );
        demand.note(NanoUsd::from_nanos(70), after(1_000));
        assert_eq!(
            (demand.requests(after(1_999)), demand.target(after(1_999)).nanos()),
            (3, 140)
        );
        assert_eq!(demand.requests(after(2_500)), 1);
        assert_eq!(
            (demand.requests(after(9_000)), demand.target(after(9_000)).nanos()),
            (0, 0)
        );
    }
}
