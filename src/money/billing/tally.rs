//! This node's own counts for one key or account: what is running, what was charged since the store's last answer, and
//! what was committed without the store.

use std::collections::VecDeque;

use crate::domain::{
    ledger::{Counted, Denial, Rates, Scope, account::bucket::Buckets, lease::Rated},
    money::NanoUsd,
};

/// The most charges remembered one by one. Further ones are added to the last.
pub(super) const CHARGES_MAX: usize = 16;
/// The shortest wait for a rate, in milliseconds, that this node tells of by itself.
const FORESEEN_MS_MIN: u64 = 250;

/// The counts of one key or account.
#[derive(Debug, Default)]
pub(super) struct Tally {
    running: u64,
    held: NanoUsd,
    /// Charges that the store's last answer does not include, by step number.
    charges: VecDeque<(u64, NanoUsd)>,
    buckets: Buckets,
    /// A rate limit that the store reported, and when it ends, in Unix milliseconds.
    wait: Option<(Denial, i64)>,
    grace_held: NanoUsd,
    grace_spent: NanoUsd,
    /// When the store last answered for this key or account, in Unix milliseconds.
    pub(super) told_ms: i64,
}

/// What an admitted request adds to the counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seat {
    /// The hold at admission.
    pub(super) hold: NanoUsd,
    /// It was admitted without the store.
    pub(super) on_grace: bool,
}

/// What the end of a request changes in the tally.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Settled {
    /// The number of the step that charges it; `None` if it could not be recorded.
    pub(super) step: Option<u64>,
    pub(super) cost: NanoUsd,
    pub(super) tokens_estimated: u64,
    pub(super) tokens_used: u64,
}

impl Tally {
    /// Without any request so far; the store last answered then.
    pub(super) fn new(told_ms: i64) -> Self {
        Self {
            told_ms,
            ..Self::default()
        }
    }

    /// The store has answered, with this node's steps up to `watermark` included.
    pub(super) fn told(&mut self, watermark: u64, now_ms: i64) {
        while self.charges.front().is_some_and(|(step, _)| *step <= watermark) {
            self.charges.pop_front();
        }
        (self.wait, self.grace_spent, self.told_ms) = (None, NanoUsd::ZERO, now_ms);
    }

    /// The store has reported a rate limit.
    pub(super) fn too_fast(&mut self, denied: Denial, retry_after_ms: u64, now_ms: i64) {
        let wait = i64::try_from(retry_after_ms).unwrap_or(i64::MAX);
        (self.wait, self.told_ms) = (Some((denied, now_ms.saturating_add(wait))), now_ms);
    }

    /// A request begins. `buckets` are this node's rate buckets after it.
    pub(super) fn begin(&mut self, seat: Seat, buckets: Option<Buckets>) {
        self.running += 1;
        self.held = self.held.saturating_add(seat.hold);
        if seat.on_grace {
            self.grace_held = self.grace_held.saturating_add(seat.hold);
        }
        if let Some(buckets) = buckets {
            self.buckets = buckets;
        }
    }

    /// A request has ended.
    pub(super) fn end(&mut self, seat: Seat, end: &Settled, rates: &Rates) {
        self.running = self.running.saturating_sub(1);
        self.held = self.held.saturating_sub(seat.hold);
        if seat.on_grace {
            self.grace_held = self.grace_held.saturating_sub(seat.hold);
            self.grace_spent = self.grace_spent.saturating_add(end.cost);
        }
        self.buckets.correct(rates, end.tokens_estimated, end.tokens_used);
        let Some(step) = end.step.filter(|_| end.cost > NanoUsd::ZERO) else {
            return;
        };
        let is_full = self.charges.len() >= CHARGES_MAX;
        match self.charges.back_mut().filter(|_| is_full) {
            Some((last, cost)) => (*last, *cost) = (step.max(*last), cost.saturating_add(end.cost)),
            None => self.charges.push_back((step, end.cost)),
        }
    }

    /// Holds and charges of this node that the store's last answer does not include.
    pub(super) fn owed(&self) -> NanoUsd {
        let charged = self.charges.iter().map(|(_, cost)| *cost);
        charged.fold(self.held, NanoUsd::saturating_add)
    }

    /// What was committed without the store.
    pub(super) fn on_grace(&self) -> NanoUsd {
        self.grace_held.saturating_add(self.grace_spent)
    }

    /// Whether no request runs.
    pub(super) fn is_idle(&self) -> bool {
        self.running == 0
    }

    /// Checks the concurrency limit.
    pub(super) fn check_running(&self, scope: Scope, rates: &Rates) -> Result<(), Denial> {
        match rates.concurrency {
            Some(limit) if self.running >= limit => Err(Denial::Concurrency {
                scope,
                limit,
                lent: false,
            }),
            _ => Ok(()),
        }
    }

    /// This node's rate buckets after one more request, or the rate limit that it exceeds.
    pub(super) fn take(&self, scope: Scope, rates: &Rates, tokens: u64, now_ms: i64) -> Result<Buckets, Denial> {
        if let Some((mut denied, until_ms)) = self.wait
            && let Denial::RateLimited {
                counted,
                limit,
                retry_after_ms,
                ..
            } = &mut denied
        {
            let now = match counted {
                Counted::Requests => rates.rpm,
                Counted::Tokens => rates.tpm,
            };
            if until_ms > now_ms && now == Some(*limit) {
                *retry_after_ms = until_ms.abs_diff(now_ms);
                return Err(denied);
            }
        }
        self.buckets.take(scope, rates, tokens, Rated::default(), now_ms)
    }

    /// The limit that any request exceeds now, however small it is. A wait that ends in a moment is left to the store,
    /// whose clock may be a little ahead of this one's; a wait for tokens says nothing of a request with fewer.
    pub(super) fn foresees(&self, scope: Scope, rates: &Rates, now_ms: i64) -> Option<Denial> {
        if let Err(denied) = self.check_running(scope, rates) {
            return Some(denied);
        }
        let waits_for_tokens = matches!(
            self.wait,
            Some((
                Denial::RateLimited {
                    counted: Counted::Tokens,
                    ..
                },
                _
            ))
        );
        let taken = match waits_for_tokens {
            true => self.buckets.take(scope, rates, 0, Rated::default(), now_ms),
            false => self.take(scope, rates, 0, now_ms),
        };
        taken.err().filter(|denied| match denied {
            Denial::RateLimited { retry_after_ms, .. } => *retry_after_ms > FORESEEN_MS_MIN,
            _ => true,
        })
    }

    /// A request was refused: it takes one of the rate, if one is there.
    pub(super) fn count_refused(&mut self, rates: &Rates, now_ms: i64) {
        if let Ok(buckets) = self.buckets.take(Scope::Key, rates, 0, Rated::default(), now_ms) {
            self.buckets = buckets;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nanos(amount: i64) -> NanoUsd {
        NanoUsd::from_nanos(amount)
    }

    fn ended(step: u64, cost: i64) -> Settled {
        Settled {
            step: Some(step),
            cost: nanos(cost),
            tokens_estimated: 0,
            tokens_used: 0,
        }
    }

    const SEAT: Seat = Seat {
        hold: NanoUsd::from_nanos(10),
        on_grace: true,
    };

    #[test]
    fn what_the_store_has_taken_over_is_owed_no_more() {
        let mut tally = Tally::default();
        for step in 1..=3 {
            tally.begin(SEAT, None);
            tally.end(SEAT, &ended(step, 5), &Rates::default());
        }
        tally.begin(SEAT, None);
        assert_eq!((tally.owed(), tally.on_grace()), (nanos(25), nanos(25)));
        tally.told(2, 1);
        assert_eq!((tally.owed(), tally.on_grace()), (nanos(15), nanos(10)));
        tally.told(3, 2);
        assert_eq!(tally.owed(), nanos(10));
    }

    #[test]
    fn charges_beyond_the_most_that_are_remembered_are_owed_all_the_same() {
        let mut tally = Tally::default();
        let many = CHARGES_MAX as u64 + 50;
        for step in 1..=many {
            tally.end(SEAT, &ended(step, 1), &Rates::default());
        }
        assert_eq!(tally.charges.len(), CHARGES_MAX);
        let owed = |tally: &Tally| tally.owed().saturating_sub(tally.held);
        assert_eq!(owed(&tally), nanos(CHARGES_MAX as i64 + 50));
        tally.told(many - 1, 1);
        assert_eq!(owed(&tally), nanos(51), "those that are added up go together");
        tally.told(many, 1);
        assert_eq!(owed(&tally), nanos(0));
    }

    #[test]
    fn a_limit_that_the_store_has_named_holds_until_its_time_or_another_limit() {
        let mut tally = Tally::default();
        let denied = |retry_after_ms| Denial::RateLimited {
            scope: Scope::Key,
            counted: Counted::Requests,
            limit: 3,
            retry_after_ms,
            lent: false,
        };
        tally.too_fast(denied(700), 700, 1_000);
        let rates = |rpm| Rates {
            rpm: Some(rpm),
            ..Rates::default()
        };
        assert_eq!(tally.take(Scope::Key, &rates(3), 1, 1_200), Err(denied(500)));
        assert!(tally.take(Scope::Key, &rates(4), 1, 1_200).is_ok());
        assert!(tally.take(Scope::Key, &rates(3), 1, 1_700).is_ok());
        tally.told(0, 1_200);
        assert!(tally.take(Scope::Key, &rates(3), 1, 1_200).is_ok());
    }
}
