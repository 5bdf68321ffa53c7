//! A lease's part of rates and slots, at its node.

use crate::domain::ledger::lease::{LeaseAllowance, RateUse};

/// One in four of the requests expected while a lease should last needs a slot of its own, in addition to those that run.
const PART_AT_ONCE: u64 = 4;

/// A lease's part of rates and slots, at its node. It has no limits until the first reply of the store, which states how much may
/// be admitted in total since the lease began, and how many requests may run in it. A node that wants less observes the lower
/// limits from the moment it asks, whether or not the question succeeds; a node that wants more waits for the reply.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RateShare {
    used: RateUse,
    allowance: LeaseAllowance,
}

impl RateShare {
    /// Whether one more request may be admitted while `running` requests run.
    pub(super) fn has_room(&self, tokens: u64, running: u64) -> bool {
        let free = self.free(running);
        let is_there = |free: Option<u64>, wanted| free.is_none_or(|free| free >= wanted);
        is_there(free.requests, 1) && is_there(free.tokens, tokens) && is_there(free.places, 1)
    }

    /// Counts an admitted request.
    pub(super) fn count_admitted(&mut self, tokens: u64) {
        self.used = self.used.saturating_add(RateUse { requests: 1, tokens });
    }

    /// The requests and tokens admitted since the lease began.
    pub(super) fn used(&self) -> RateUse {
        self.used
    }

    /// Whether less than half of the target is free.
    pub(super) fn is_low(&self, target: RateUse, running: u64) -> bool {
        let free = self.free(running);
        let is_low = |free: Option<u64>, wanted: u64| free.is_some_and(|free| free < wanted.div_ceil(2));
        is_low(free.requests, target.requests)
            || is_low(free.tokens, target.tokens)
            || is_low(free.places, spare_places(target))
    }

    /// Whether a rate has an unused part to give back.
    pub(super) fn has_free_rate(&self) -> bool {
        let free = self.free(0);
        [free.requests, free.tokens].into_iter().flatten().any(|free| free > 0)
    }

    /// Lowers the limits to what the node wants from now on, with `target` free. Returns the slots to ask for.
    pub(super) fn lower_limits(&mut self, target: RateUse, running: u64) -> u64 {
        let places = running.saturating_add(spare_places(target));
        let most = self.used.saturating_add(target);
        self.allowance = LeaseAllowance {
            requests: self.allowance.requests.map(|allowed| allowed.min(most.requests)),
            tokens: self.allowance.tokens.map(|allowed| allowed.min(most.tokens)),
            places: self.allowance.places.map(|allowed| allowed.min(places)),
        };
        places
    }

    /// Replaces the limits with those that the store states.
    pub(super) fn set_allowance(&mut self, allowance: LeaseAllowance) {
        self.allowance = allowance;
    }

    fn free(&self, running: u64) -> LeaseAllowance {
        let (allowed, used) = (self.allowance, self.used);
        LeaseAllowance {
            requests: allowed.requests.map(|requests| requests.saturating_sub(used.requests)),
            tokens: allowed.tokens.map(|tokens| tokens.saturating_sub(used.tokens)),
            places: allowed.places.map(|places| places.saturating_sub(running)),
        }
    }
}

/// How many slots should be free; zero if no further requests are wanted.
fn spare_places(target: RateUse) -> u64 {
    target.requests.div_ceil(PART_AT_ONCE)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rated(requests: u64, tokens: u64) -> RateUse {
        RateUse { requests, tokens }
    }

    fn allowance(requests: u64, tokens: u64, places: u64) -> LeaseAllowance {
        LeaseAllowance {
            requests: Some(requests),
            tokens: Some(tokens),
            places: Some(places),
        }
    }

    #[test]
    fn each_limit_that_there_is_bounds_what_is_admitted() {
        let mut share = RateShare::default();
        assert!(share.has_room(1_000, 1_000), "without a limit");
        share.set_allowance(allowance(2, 100, 3));
        assert!(share.has_room(100, 2));
        assert!(!share.has_room(101, 2), "tokens");
        assert!(!share.has_room(1, 3), "places");
        share.count_admitted(40);
        share.count_admitted(0);
        assert!(!share.has_room(0, 0), "requests");
        assert_eq!(share.used(), rated(2, 40));
        share.set_allowance(LeaseAllowance {
            requests: None,
            ..allowance(0, 41, 1)
        });
        assert!(share.has_room(1, 0) && !share.has_room(2, 0));
    }

    #[test]
    fn less_holds_from_the_question_on_and_more_from_the_answer() {
        let mut share = RateShare::default();
        share.set_allowance(allowance(20, 2_000, 9));
        share.count_admitted(100);
        assert_eq!(share.lower_limits(rated(4, 300), 2), 3);
        assert!(share.has_room(300, 2) && !share.has_room(301, 2) && !share.has_room(300, 3));
        assert_eq!(share.lower_limits(rated(40, 3_000), 2), 12);
        assert!(!share.has_room(301, 2), "nothing has come back yet");
        share.set_allowance(allowance(41, 3_100, 12));
        assert!(share.has_room(3_000, 11));
    }

    #[test]
    fn it_is_low_when_less_than_half_of_one_is_free() {
        let mut share = RateShare::default();
        let target = rated(8, 100);
        assert!(!share.is_low(target, 7), "without a limit");
        share.set_allowance(allowance(8, 100, 9));
        assert!(!share.is_low(target, 8));
        assert!(share.is_low(target, 9), "places");
        for _ in 0..5 {
            share.count_admitted(0);
        }
        assert!(share.is_low(target, 0), "requests");
        share.set_allowance(allowance(50, 49, 9));
        assert!(share.is_low(target, 0), "tokens");
        assert!(share.has_free_rate());
        share.lower_limits(RateUse::default(), 4);
        assert!(!share.has_free_rate() && !share.is_low(RateUse::default(), 4));
    }
}
