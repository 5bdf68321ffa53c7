//! Decides how a running request's hold grows with its answer, and when the answer must end because the hold cannot grow.

use std::{
    collections::HashMap,
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use futures_util::{StreamExt, stream};
use tokio::sync::watch;

use crate::{
    domain::{
        keys::KeyRecord,
        ledger::{
            KeyTerms, OnExhausted,
            lease::{LeaseCall, LeaseReply},
        },
        money::NanoUsd,
    },
    edges::clock,
    money::billing::engine::{BillingEngine, GrantedHold},
};

/// The pause after a refused top-up. After it, other requests may have ended their holds.
const ASK_AGAIN: Duration = Duration::from_secs(1);
/// The pause after a top-up call that the store could not answer.
const ASK_AFTER_FAILURE: Duration = Duration::from_millis(100);
/// The divisor for the reserve: a top-up is requested when less than one increment divided by this is left of the hold.
const RESERVE_PART: i64 = 4;
/// The divisor for the minimum increment: an increment is at least the first hold divided by this.
const INCREMENT_PART_MIN: i64 = 8;

/// The hold of a running request as this node sees it; the store has the hold itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HoldGrowth {
    hold: NanoUsd,
    /// The amount of the next top-up, beyond what is used already.
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
    /// The maximum cost is this amount.
    Amount(NanoUsd),
    /// There is no maximum: the answer may finish.
    None,
}

/// The answer to a request for a top-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TopUpAnswer {
    /// The hold has grown by this amount.
    Granted(NanoUsd),
    /// Nothing is left of the quota or balance.
    Refused,
    /// The store has no hold of this request. The node adds this amount only to its own count.
    Uncounted(NanoUsd),
    /// The store could not answer.
    Unknown,
}

impl SpendCap {
    /// Returns the maximum by the key's terms. `balance` is the account's at admission, `estimate` is the request's.
    ///
    /// An answer that may finish is limited to a multiple of the key's quota. Without a quota, the account's balance is used
    /// instead, but at least the estimate: the last cents of a balance do not pay for a complete answer, which may finish
    /// nevertheless.
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

    /// Returns the top-up to request when the answer has cost `cost` so far; `None` if the hold suffices, a top-up is being
    /// requested already, or it is too early to request again. The caller calls the store and reports the result with
    /// [`HoldGrowth::on_answer`].
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
    /// So a long answer needs few top-ups, and a short one holds only slightly too much.
    pub(super) fn on_answer(&mut self, answer: TopUpAnswer) {
        self.is_asking = false;
        self.answer = Some(answer);
        if let TopUpAnswer::Granted(more) | TopUpAnswer::Uncounted(more) = answer {
            self.hold = self.hold.saturating_add(more);
            self.increment = self.increment.saturating_add(self.increment);
        }
    }

    /// Whether an answer that costs this much must end.
    pub(super) fn must_stop(&self, cost: NanoUsd) -> bool {
        let is_granted = matches!(self.answer, None | Some(TopUpAnswer::Granted(_)));
        match self.bound {
            SpendCap::Hold => self.answer == Some(TopUpAnswer::Refused) && cost >= self.hold,
            SpendCap::Amount(bound) => !is_granted && cost >= bound,
            SpendCap::None => false,
        }
    }

    /// Returns the cost at which the next decision is due at the latest; `None` if only time matters. A top-up may be requested
    /// late by half the reserve, so that a nearly used hold causes a few computations of the cost, not one at every event.
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

    /// The part of the hold that is left when a top-up is requested.
    fn reserve(&self) -> NanoUsd {
        NanoUsd::from_nanos(self.increment.nanos() / RESERVE_PART)
    }
}

impl BillingEngine {
    /// Writes a checkpoint whenever one is due because requests have consumed something. Never returns.
    pub(super) async fn keep_checkpoints(&self) {
        loop {
            let due = self.running.next_checkpoint().await;
            tokio::time::sleep_until(due.into()).await;
            self.checkpoint();
        }
    }

    /// Writes a checkpoint of all requests that have consumed something since the last one.
    pub(super) fn checkpoint(&self) {
        self.running.on_checkpoint(clock::instant());
        for _ in 0..self.journal.record_checkpoints(&self.running.take_changed()) {
            self.counters.record_failure();
        }
    }

    /// Renews the holds, then ends the unconfirmed holds wherever the ledger is reachable. The others stay unconfirmed.
    pub(super) async fn renew(&self) {
        let accounts: Vec<String> = self.running.by_account().into_keys().map(String::from).collect();
        let unconfirmed = self.unconfirmed.take_all();
        let renewed = self.ledger.renew(&self.node, &accounts).await;
        if let Err(error) = &renewed {
            tracing::debug!(%error, "cannot renew the holds of all running requests; trying again at the next renewal");
        }
        let mut there = HashMap::new();
        let mut open = Vec::new();
        for hold in unconfirmed {
            let is_there = match there.get(hold.account()) {
                Some(is_there) => *is_there,
                None => {
                    // One part of the ledger may be unreachable while another is not.
                    let account = [hold.account().to_owned()];
                    let is_there = renewed.is_ok() || self.ledger.renew(&self.node, &account).await.is_ok();
                    let [account] = account;
                    there.insert(account, is_there);
                    is_there
                }
            };
            if is_there && hold.end(&self.journal).is_ok() {
                continue;
            }
            if is_there {
                self.counters.record_failure();
            }
            open.push(hold);
        }
        self.unconfirmed.put_back(open);
    }
}

/// How often the node looks for due calls if it has leases. Without leases, it only looks for keys that can be removed.
const LOOK_EVERY: Duration = Duration::from_millis(50);
const LOOK_EVERY_WITHOUT: Duration = Duration::from_secs(2);
/// Maximum number of concurrent calls when the process ends, and the timeout for all of them.
const AT_ONCE: usize = 16;
const GIVEN_BACK_WITHIN: Duration = Duration::from_millis(500);

impl BillingEngine {
    /// Admits a request from its key's lease; returns `None` if the store must be called.
    pub(super) fn allocate(&self, key: &KeyRecord, estimate: NanoUsd, tokens: u64) -> Option<GrantedHold> {
        if !self.leases.is_enabled() {
            return None;
        }
        let now = clock::instant();
        let (part, cut) = self.leases.allocate(key, estimate, tokens, now)?;
        self.counters.lease_admissions.fetch_add(1, Ordering::Relaxed);
        Some(GrantedHold {
            seat: self.grace.on_lease_admission(key, estimate, tokens),
            at_ms: cut.at_ms,
            at: now,
            watermark: cut.grant.watermark,
            balance: Some(cut.grant.balance),
            quota: cut.grant.quota,
            provider_state: cut.grant.provider_state,
            allocation: Some(part),
        })
    }

    /// Requests and renews leases until `shutdown` becomes true, then gives them back.
    pub(super) async fn keep_leases(self: Arc<Self>, mut shutdown: watch::Receiver<bool>) {
        if !self.leases.is_enabled() {
            return;
        }
        loop {
            let pause = if self.leases.has_leases() {
                LOOK_EVERY
            } else {
                LOOK_EVERY_WITHOUT
            };
            tokio::select! {
                () = self.leases.wake.notified() => {}
                () = tokio::time::sleep(pause) => {}
                _ = shutdown.wait_for(|stop| *stop) => break,
            }
            for ask in self.leases.due_calls(&self.node, clock::instant()) {
                let engine = Arc::clone(&self);
                tokio::spawn(async move { engine.call_lease(ask).await });
            }
        }
        self.leases.recall(|_| true);
        let questions = self.leases.due_calls(&self.node, clock::instant());
        let given_back = stream::iter(questions).for_each_concurrent(AT_ONCE, |ask| self.call_lease(ask));
        if tokio::time::timeout(GIVEN_BACK_WITHIN, given_back).await.is_err() {
            tracing::debug!("cannot give all leases back in time; they expire by themselves");
        }
    }

    async fn call_lease(&self, ask: LeaseCall) {
        let asked = clock::instant();
        let answer = self.ledger.lease(&ask).await;
        let answered = clock::instant();
        if let Err(error) = &answer {
            tracing::debug!(lease = %ask.lease, %error, "the ledger did not answer a lease call");
        }
        let answer = answer.ok();
        let key = self.leases.on_reply(&ask, answer.as_ref(), (asked, answered));
        if let (Some((key, goes_on)), Some(LeaseReply::Held(leased))) = (key, &answer) {
            self.time.record(leased.grant.at_ms, asked, answered);
            self.grace.record_grant(&key, &leased.grant, goes_on);
        }
    }
}
