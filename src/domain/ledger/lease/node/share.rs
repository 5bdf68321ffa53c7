//! What a lease has of rates and places, as its node has it.
//!
//! The store says how much may be admitted out of the lease since it began, and how many may run in it. A node that wants less
//! keeps to that from the moment it asks, whatever becomes of the question; one that wants more waits for the answer.

use crate::domain::ledger::lease::{LeaseAllowance, Rated};

/// Of the requests that come in the time a lease should last for, one in so many needs a place of its own beyond those that run.
const PART_AT_ONCE: u64 = 4;

/// A lease's part of rates and places. It begins without any limit: the store says which there are with its first answer.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Share {
    used: Rated,
    allowance: LeaseAllowance,
}

impl Share {
    /// Whether one more request may be admitted, while so many run.
    pub(super) fn has(&self, tokens: u64, running: u64) -> bool {
        let free = self.free(running);
        let is_there = |free: Option<u64>, wanted| free.is_none_or(|free| free >= wanted);
        is_there(free.requests, 1) && is_there(free.tokens, tokens) && is_there(free.places, 1)
    }

    /// One is admitted.
    pub(super) fn take(&mut self, tokens: u64) {
        self.used = self.used.plus(Rated { requests: 1, tokens });
    }

    /// What was admitted since the lease began.
    pub(super) fn used(&self) -> Rated {
        self.used
    }

    /// Whether less than half of what should be free is.
    pub(super) fn is_low(&self, target: Rated, running: u64) -> bool {
        let free = self.free(running);
        let is_low = |free: Option<u64>, wanted: u64| free.is_some_and(|free| free < wanted.div_ceil(2));
        is_low(free.requests, target.requests)
            || is_low(free.tokens, target.tokens)
            || is_low(free.places, spare(target))
    }

    /// Whether there is anything of a rate to be given back.
    pub(super) fn is_there(&self) -> bool {
        let free = self.free(0);
        [free.requests, free.tokens].into_iter().flatten().any(|free| free > 0)
    }

    /// The node asks for so much to be free: it keeps to less at once. How many places it asks for.
    pub(super) fn asks(&mut self, target: Rated, running: u64) -> u64 {
        let places = running.saturating_add(spare(target));
        let most = self.used.plus(target);
        self.allowance = LeaseAllowance {
            requests: self.allowance.requests.map(|allowed| allowed.min(most.requests)),
            tokens: self.allowance.tokens.map(|allowed| allowed.min(most.tokens)),
            places: self.allowance.places.map(|allowed| allowed.min(places)),
        };
        places
    }

    /// Replaces what may be admitted, as the store says it.
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

/// How many places should be free. None, if nothing is wanted any more.
fn spare(target: Rated) -> u64 {
    target.requests.div_ceil(PART_AT_ONCE)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rated(requests: u64, tokens: u64) -> Rated {
        Rated { requests, tokens }
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
        let mut share = Share::default();
        assert!(share.has(1_000, 1_000), "without a limit");
        share.set_allowance(allowance(2, 100, 3));
        assert!(share.has(100, 2));
        assert!(!share.has(101, 2), "tokens");
        assert!(!share.has(1, 3), "places");
        share.take(40);
        share.take(0);
        assert!(!share.has(0, 0), "requests");
        assert_eq!(share.used(), rated(2, 40));
        share.set_allowance(LeaseAllowance {
            requests: None,
            ..allowance(0, 41, 1)
        });
        assert!(share.has(1, 0) && !share.has(2, 0));
    }

    #[test]
    fn less_holds_from_the_question_on_and_more_from_the_answer() {
        let mut share = Share::default();
        share.set_allowance(allowance(20, 2_000, 9));
        share.take(100);
        assert_eq!(share.asks(rated(4, 300), 2), 3);
        assert!(share.has(300, 2) && !share.has(301, 2) && !share.has(300, 3));
        assert_eq!(share.asks(rated(40, 3_000), 2), 12);
        assert!(!share.has(301, 2), "nothing has come back yet");
        share.set_allowance(allowance(41, 3_100, 12));
        assert!(share.has(3_000, 11));
    }

    #[test]
    fn it_is_low_when_less_than_half_of_one_is_free() {
        let mut share = Share::default();
        let target = rated(8, 100);
        assert!(!share.is_low(target, 7), "without a limit");
        share.set_allowance(allowance(8, 100, 9));
        assert!(!share.is_low(target, 8));
        assert!(share.is_low(target, 9), "places");
        for _ in 0..5 {
            share.take(0);
        }
        assert!(share.is_low(target, 0), "requests");
        share.set_allowance(allowance(50, 49, 9));
        assert!(share.is_low(target, 0), "tokens");
        assert!(share.is_there());
        share.asks(Rated::default(), 4);
        assert!(!share.is_there() && !share.is_low(Rated::default(), 4));
    }
}
