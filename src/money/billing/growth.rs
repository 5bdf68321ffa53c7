//! Decides how a running request's hold grows with its answer, and when the answer must end because the hold cannot grow.

use std::time::{Duration, Instant};

use crate::domain::{
    ledger::{KeyTerms, OnExhausted},
    money::NanoUsd,
};

/// The pause after a refused top-up. In the meantime, other requests may end their holds.
const ASK_AGAIN: Duration = Duration::from_secs(1);
/// The pause after a top-up call that the store could not answer.
const ASK_AFTER_FAILURE: Duration = Duration::from_millis(100);
/// The divisor that determines the reserve: the reserve is the next increment divided by this number. A top-up is requested when
/// the unused part of the hold is smaller than the reserve.
const RESERVE_PART: i64 = 4;
/// The divisor for the minimum increment. An increment is at least the first hold divided by this number.
const INCREMENT_PART_MIN: i64 = 8;

/// This node's view of a running request's hold; the hold itself is in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HoldGrowth {
    hold: NanoUsd,
    /// The amount of the next top-up, not counting cost that already exceeds the hold.
    increment: NanoUsd,
    bound: SpendCap,
    /// The answer to the last top-up; `None` before the first.
    answer: Option<TopUpAnswer>,
    asked: Option<Instant>,
    is_asking: bool,
}

/// The maximum cost of an answer whose hold cannot grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SpendCap {
    /// The maximum cost is the hold.
    Hold,
    /// The maximum cost is the given amount.
    Amount(NanoUsd),
    /// There is no maximum: the answer may finish.
    None,
}

/// The answer to a request for a top-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TopUpAnswer {
    /// The hold has grown by this amount.
    Granted(NanoUsd),
    /// The quota or the balance has no free amount left.
    Refused,
    /// The store has no hold for this request. The node adds this amount only to its own count.
    Uncounted(NanoUsd),
    /// The store could not answer.
    Unknown,
}

impl SpendCap {
    /// Returns the maximum cost by the key's terms. `balance` is the account's balance at admission, and `estimate` is the
    /// estimated cost of the request.
    ///
    /// With `OnExhausted::Cut`, the maximum is the hold. With `OnExhausted::Finish`, it is a multiple of the key's quota. If the
    /// key has no quota, it is a multiple of the account's balance or of the estimate, whichever is greater. The estimate is
    /// considered because the balance at admission may be smaller than the cost of the answer.
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

impl HoldGrowth {
    /// Creates the hold of a request whose output is estimated to cost `output`.
    pub(super) fn new(hold: NanoUsd, output: NanoUsd, bound: SpendCap) -> Self {
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

    /// The amount that is held at present.
    pub(super) fn hold(&self) -> NanoUsd {
        self.hold
    }

    #[cfg(test)]
    pub(super) fn is_asking(&self) -> bool {
        self.is_asking
    }

    /// Returns the amount of the top-up that the caller must request. `cost` is the cost of the answer so far. Returns `None` if
    /// the hold suffices, if a top-up has been requested and not answered, or if it is too early for another request. The caller
    /// calls the store and reports the result with [`HoldGrowth::on_answer`].
    pub(super) fn next_top_up(&mut self, cost: NanoUsd, now: Instant) -> Option<NanoUsd> {
        let pause = match self.answer {
            Some(TopUpAnswer::Refused) => ASK_AGAIN,
            Some(TopUpAnswer::Unknown) => ASK_AFTER_FAILURE,
            Some(TopUpAnswer::Granted(_) | TopUpAnswer::Uncounted(_)) | None => Duration::ZERO,
        };
        let is_too_soon = self.asked.is_some_and(|asked| now < asked + pause);
        if self.is_asking || is_too_soon || cost <= NanoUsd::ZERO || cost < self.covered_cost() {
            return None;
        }
        (self.is_asking, self.asked) = (true, Some(now));
        let missing = cost.saturating_sub(self.hold).max(NanoUsd::ZERO);
        Some(missing.saturating_add(self.increment))
    }

    /// Applies the answer to the top-up from [`HoldGrowth::next_top_up`]. After a success, the next increment is twice as large.
    /// As a result, a long answer needs few top-ups, and a short answer holds only slightly more than it costs.
    pub(super) fn on_answer(&mut self, answer: TopUpAnswer) {
        self.is_asking = false;
        self.answer = Some(answer);
        if let TopUpAnswer::Granted(more) | TopUpAnswer::Uncounted(more) = answer {
            self.hold = self.hold.saturating_add(more);
            self.increment = self.increment.saturating_add(self.increment);
        }
    }

    /// Whether the answer must end at the cost `cost`.
    pub(super) fn must_stop(&self, cost: NanoUsd) -> bool {
        let is_granted = matches!(self.answer, None | Some(TopUpAnswer::Granted(_)));
        match self.bound {
            SpendCap::Hold => self.answer == Some(TopUpAnswer::Refused) && cost >= self.hold,
            SpendCap::Amount(bound) => !is_granted && cost >= bound,
            SpendCap::None => false,
        }
    }

    /// Returns the cost at which a decision about a top-up or about the answer's end is due at the latest; `None` if no cost
    /// requires a decision. A top-up may be delayed until half of the reserve is used. Therefore, when the hold is nearly used,
    /// the cost is computed only a few times and not at every event.
    pub(super) fn next_sample(&self) -> Option<NanoUsd> {
        let late = NanoUsd::from_nanos(self.reserve().nanos() / 2);
        match (self.answer, self.bound) {
            (None | Some(TopUpAnswer::Granted(_)), _) if !self.is_asking => {
                Some(self.covered_cost().saturating_add(late))
            }
            (Some(TopUpAnswer::Uncounted(_) | TopUpAnswer::Unknown), SpendCap::Hold) | (_, SpendCap::None) => None,
            (_, SpendCap::Hold) => Some(self.hold),
            (_, SpendCap::Amount(bound)) => Some(bound),
        }
    }

    /// The cost up to which the hold suffices.
    fn covered_cost(&self) -> NanoUsd {
        self.hold.saturating_sub(self.reserve())
    }

    /// The reserve. When the unused part of the hold is smaller than this amount, a top-up is requested.
    fn reserve(&self) -> NanoUsd {
        NanoUsd::from_nanos(self.increment.nanos() / RESERVE_PART)
    }
}
