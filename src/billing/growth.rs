//! How the hold of a running request grows with its answer, and when an answer ends because it cannot.

use std::time::{Duration, Instant};

use crate::domain::{
    ledger::{KeyTerms, OnExhausted},
    money::NanoUsd,
};

/// How long a no holds: what other requests hold may be free by then.
const ASK_AGAIN: Duration = Duration::from_secs(1);
/// How long the next question waits where the store could not say.
const ASK_AFTER_FAILURE: Duration = Duration::from_millis(100);
/// A hold is to grow when less than this part of a step is left of it.
const RESERVE_PART: i64 = 4;
/// A step is at least this part of the first hold.
const STEP_PART_MIN: i64 = 8;

/// One hold. Amounts are of this node's knowledge: the store has the hold itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Growth {
    hold: NanoUsd,
    /// How much more is asked for the next time, beyond what is used already.
    step: NanoUsd,
    bound: Bound,
    /// How the last question ended, if one has.
    answer: Option<Answer>,
    asked: Option<Instant>,
    is_asking: bool,
}

/// What the cost of an answer may come to when its hold cannot grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bound {
    /// The hold.
    Hold,
    /// This much.
    Amount(NanoUsd),
    /// Anything: it ends by itself.
    None,
}

/// How a question for more has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// The hold has grown by this much.
    Granted(NanoUsd),
    /// Nothing is left.
    Refused,
    /// The store knows no hold of this request: the node counts on without it.
    Uncounted(NanoUsd),
    /// The store could not say.
    Unknown,
}

impl Bound {
    /// As the key says. `balance` is that of the account when the request was admitted, `estimate` what it was estimated at.
    ///
    /// An answer that may finish is bounded by a multiple of the key's quota. Where the key has none it is the account's
    /// balance that it could spend, and at least what the request was estimated at: the last cents of a balance pay for no
    /// whole answer, and yet it may finish.
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
    /// A hold of a request whose output is estimated at `output`.
    pub(super) fn new(hold: NanoUsd, output: NanoUsd, bound: Bound) -> Self {
        let least = NanoUsd::from_nanos((hold.nanos() / STEP_PART_MIN).max(1));
        Self {
            hold,
            step: output.max(least),
            bound,
            answer: None,
            asked: None,
            is_asking: false,
        }
    }

    /// What is held.
    pub(super) fn hold(&self) -> NanoUsd {
        self.hold
    }

    #[cfg(test)]
    pub(super) fn is_asking(&self) -> bool {
        self.is_asking
    }

    /// By how much the hold is to grow now that so much is used; `None`: it suffices, or was asked for already. Whoever gets
    /// an amount asks the store for it, and says how that ended with [`Growth::answered`].
    pub(super) fn wants(&mut self, cost: NanoUsd, now: Instant) -> Option<NanoUsd> {
        let pause = match self.answer {
            Some(Answer::Refused) => ASK_AGAIN,
            Some(Answer::Unknown) => ASK_AFTER_FAILURE,
            Some(Answer::Granted(_) | Answer::Uncounted(_)) | None => Duration::ZERO,
        };
        let is_too_soon = self.asked.is_some_and(|asked| now < asked + pause);
        if self.is_asking || is_too_soon || cost <= NanoUsd::ZERO || cost < self.enough() {
            return None;
        }
        (self.is_asking, self.asked) = (true, Some(now));
        let missing = cost.saturating_sub(self.hold).max(NanoUsd::ZERO);
        Some(missing.saturating_add(self.step))
    }

    /// The question that [`Growth::wants`] wanted asked has ended. The next step is twice as large: few questions for a long
    /// answer, little held for nothing at its end.
    pub(super) fn answered(&mut self, answer: Answer) {
        self.is_asking = false;
        self.answer = Some(answer);
        if let Answer::Granted(more) | Answer::Uncounted(more) = answer {
            self.hold = self.hold.saturating_add(more);
            self.step = self.step.saturating_add(self.step);
        }
    }

    /// Whether an answer that has cost so much is to be ended.
    pub(super) fn is_over(&self, cost: NanoUsd) -> bool {
        let is_granted = matches!(self.answer, None | Some(Answer::Granted(_)));
        match self.bound {
            Bound::Hold => self.answer == Some(Answer::Refused) && cost >= self.hold,
            Bound::Amount(bound) => !is_granted && cost >= bound,
            Bound::None => false,
        }
    }

    /// The cost at which something is to be decided, apart from the time.
    pub(super) fn next_look(&self) -> Option<NanoUsd> {
        match (self.answer, self.bound) {
            (None | Some(Answer::Granted(_)), _) if !self.is_asking => Some(self.enough()),
            (Some(Answer::Uncounted(_) | Answer::Unknown), Bound::Hold) | (_, Bound::None) => None,
            (_, Bound::Hold) => Some(self.hold),
            (_, Bound::Amount(bound)) => Some(bound),
        }
    }

    /// Up to here the hold suffices.
    fn enough(&self) -> NanoUsd {
        let reserve = NanoUsd::from_nanos(self.step.nanos() / RESERVE_PART);
        self.hold.saturating_sub(reserve)
    }
}
