//! How a running request's hold grows with its answer, and when the answer must end because it cannot.

use std::time::{Duration, Instant};

use crate::domain::{
    ledger::{KeyTerms, OnExhausted},
    money::NanoUsd,
};

/// How long to wait after a refusal: other requests may have returned their holds by then.
const ASK_AGAIN: Duration = Duration::from_secs(1);
/// How long to wait after the store could not answer.
const ASK_AFTER_FAILURE: Duration = Duration::from_millis(100);
/// The hold grows when less than one increment divided by this is left of it.
const RESERVE_PART: i64 = 4;
/// An increment is at least the first hold divided by this.
const INCREMENT_PART_MIN: i64 = 8;

/// One hold, as this node knows it; the store has the hold itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Growth {
    hold: NanoUsd,
    /// How much is asked for next, beyond what is used already.
    increment: NanoUsd,
    bound: Bound,
    /// The result of the last question, if there was one.
    answer: Option<TopUpAnswer>,
    asked: Option<Instant>,
    is_asking: bool,
}

/// How far an answer's cost may go when its hold cannot grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bound {
    /// As far as the hold.
    Hold,
    /// Up to this amount.
    Amount(NanoUsd),
    /// Without limit: the answer may finish.
    None,
}

/// The result of asking for a larger hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TopUpAnswer {
    /// The hold has grown by this much.
    Granted(NanoUsd),
    /// Nothing is left.
    Refused,
    /// The store has no hold of this request; the node counts on without it.
    Uncounted(NanoUsd),
    /// The store could not answer.
    Unknown,
}

impl Bound {
    /// The bound by the key's terms. `balance` is the account's at admission, `estimate` the request's.
    ///
    /// An answer that may finish is bounded by a multiple of the key's quota. Without a quota the account's balance
    /// takes its place, but at least the estimate: the last cents of a balance pay for no complete answer, and yet it
    /// may finish.
    pub(super) fn of(terms: &KeyTerms, balance: Option<NanoUsd>, estimate: NanoUsd) -> Self {
        let allowance = terms.quota.or(balance.map(|balance| balance.max(estimate)));
        match (terms.on_exhausted, allowance) {
            (OnExhausted::Cut, _) => Self::Hold,
            (OnExhausted::Finish, Some(allowance)) => {
                terms.finish_factor.times(allowance).map_or(Self::None, Self::Amount)
            }
            (OnExhausted::Finish, None) => Self::None,
        }
    }
}

impl Growth {
    /// The hold of a request whose output is estimated to cost `output`.
    pub(super) fn new(hold: NanoUsd, output: NanoUsd, bound: Bound) -> Self {
        let least = NanoUsd::from_nanos((hold.nanos() / INCREMENT_PART_MIN).max(1));
        Self {
            hold,
            increment: output.max(least),
            bound,
            answer: None,
            asked: None,
            is_asking: false,
        }
    }

    /// The amount held.
    pub(super) fn hold(&self) -> NanoUsd {
        self.hold
    }

    #[cfg(test)]
    pub(super) fn is_asking(&self) -> bool {
        self.is_asking
    }

    /// By how much to grow the hold now that `cost` is used; `None` if it suffices, was asked for already, or it is too
    /// early to ask again. The caller asks the store and reports the result by [`Growth::answered`].
    pub(super) fn wants(&mut self, cost: NanoUsd, now: Instant) -> Option<NanoUsd> {
        let pause = match self.answer {
            Some(TopUpAnswer::Refused) => ASK_AGAIN,
            Some(TopUpAnswer::Unknown) => ASK_AFTER_FAILURE,
            Some(TopUpAnswer::Granted(_) | TopUpAnswer::Uncounted(_)) | None => Duration::ZERO,
        };
        let is_too_soon = self.asked.is_some_and(|asked| now < asked + pause);
        if self.is_asking || is_too_soon || cost <= NanoUsd::ZERO || cost < self.enough() {
            return None;
        }
        (self.is_asking, self.asked) = (true, Some(now));
        let missing = cost.saturating_sub(self.hold).max(NanoUsd::ZERO);
        Some(missing.saturating_add(self.increment))
    }

    /// The result of the question that [`Growth::wants`] asked for. The next increment is twice as large, so a long answer
    /// needs few questions and little is left over at its end.
    pub(super) fn answered(&mut self, answer: TopUpAnswer) {
        self.is_asking = false;
        self.answer = Some(answer);
        if let TopUpAnswer::Granted(more) | TopUpAnswer::Uncounted(more) = answer {
            self.hold = self.hold.saturating_add(more);
            self.increment = self.increment.saturating_add(self.increment);
        }
    }

    /// Whether an answer that costs this much must end.
    pub(super) fn is_over(&self, cost: NanoUsd) -> bool {
        let is_granted = matches!(self.answer, None | Some(TopUpAnswer::Granted(_)));
        match self.bound {
            Bound::Hold => self.answer == Some(TopUpAnswer::Refused) && cost >= self.hold,
            Bound::Amount(bound) => !is_granted && cost >= bound,
            Bound::None => false,
        }
    }

    /// The cost at which the next decision is due, at the latest; `None` if only time matters. Asking for more may take half of
    /// the reserve: an answer whose end comes near is then looked at a few times, and not at every event.
    pub(super) fn next_look(&self) -> Option<NanoUsd> {
        let late = NanoUsd::from_nanos(self.reserve().nanos() / 2);
        match (self.answer, self.bound) {
            (None | Some(TopUpAnswer::Granted(_)), _) if !self.is_asking => Some(self.enough().saturating_add(late)),
            (Some(TopUpAnswer::Uncounted(_) | TopUpAnswer::Unknown), Bound::Hold) | (_, Bound::None) => None,
            (_, Bound::Hold) => Some(self.hold),
            (_, Bound::Amount(bound)) => Some(bound),
        }
    }

    /// The cost up to which the hold suffices.
    fn enough(&self) -> NanoUsd {
        self.hold.saturating_sub(self.reserve())
    }

    /// What is left of the hold when more is asked for.
    fn reserve(&self) -> NanoUsd {
        NanoUsd::from_nanos(self.increment.nanos() / RESERVE_PART)
    }
}
