//! A lease at the node that admits requests from it.
//!
//! The free part of a lease is the amount that the store reported, less the holds of requests in it, less the costs of ended
//! requests whose steps the store has not applied, less what is being returned or requested. A reply of the store has the amount
//! and the last applied step of one moment, so each reply corrects the free part, in whatever order requests end meanwhile. One
//! question to the store is open at a time.
//!
//! A lease is used only within one second of the last question that the store has answered. So nothing is admitted on terms that
//! an operator changed more than a second ago, nor from a lease that the store may have given to others: for that its holder
//! must be silent for `LEASE_MS`.

#[cfg(test)]
mod tests;

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use crate::domain::{
    QuickMap,
    ledger::{
        admission::Grant,
        lease::{LeaseAllowance, LeaseChange, LeaseGrant, LeaseReply, RateUse, day_of},
    },
    money::NanoUsd,
};

/// How long after a question that the store has answered requests are admitted from the lease.
pub(crate) const CONFIRMED_FOR: Duration = Duration::from_secs(1);
/// The interval of questions about a lease in use: a quarter of [`CONFIRMED_FOR`].
pub(crate) const ASK_INTERVAL: Duration = Duration::from_millis(250);
/// The interval of questions about a lease in which requests only end: a third of the node's own lease.
pub(crate) const KEEP_INTERVAL: Duration = Duration::from_secs(10);
/// The minimum interval between two questions for more.
pub(crate) const GROW_INTERVAL: Duration = Duration::from_millis(20);
/// How long a lease may be unused before it is given back.
pub(crate) const IDLE_LEASE_MAX: Duration = Duration::from_secs(2);
/// The maximum number of costs kept separately until the store has applied them. Further costs are added to the last.
const OWED_MAX: usize = 1_024;

/// The part of a lease that should be free.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LeaseTarget {
    /// The amount for estimates.
    pub(crate) amount: NanoUsd,
    /// Requests and tokens, where rates are limited.
    pub(crate) rated: RateUse,
}

/// The next question to the store about a lease: those fields of [`super::LeaseCall`] that change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LeaseRequest {
    pub(crate) turn: u64,
    pub(crate) change: LeaseChange,
    pub(crate) used: RateUse,
    pub(crate) free: RateUse,
    pub(crate) places: u64,
}

/// A request's part of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Allocation {
    /// Its number within the lease.
    pub(crate) number: u64,
    /// When it was admitted, by the store's clock, in milliseconds since the Unix epoch.
    pub(crate) at_ms: i64,
    /// Key and account as the store last described them; `hold` is the lease's amount.
    pub(crate) grant: Grant,
}

/// A lease at its node. The default is a lease that the store has not been asked for.
#[derive(Clone, Debug, Default)]
pub(crate) struct NodeLease {
    /// The amount that the store last reported.
    amount: NanoUsd,
    last_reply: Option<LastReply>,
    share: RateShare,
    allocations: QuickMap<u64, NanoUsd>,
    allocated: NanoUsd,
    last_number: u64,
    /// The amount that running requests are asking the store for because too little was free.
    asked_for: NanoUsd,
    /// The costs of ended requests whose steps the store has not applied, with those steps.
    owed: VecDeque<(u64, NanoUsd)>,
    owed_total: NanoUsd,
    /// Costs whose steps could not be recorded.
    lost: NanoUsd,
    /// The amount that is being given back.
    returning: NanoUsd,
    /// The sequence number of the last question.
    turn: u64,
    /// How many requests ran in the lease at that question.
    running_at_request: u64,
    is_asking: bool,
    /// The last question was not answered, so the store may hold more for the lease than it reported.
    is_unsure: bool,
    /// When the last question failed; `None` once one was answered.
    failed_at: Option<Instant>,
    /// The amount before the last request to grow, and the target of that request.
    before_growth: Option<(NanoUsd, LeaseTarget)>,
    /// The last request to grow did not succeed, or not enough for rates and slots.
    is_near: bool,
    /// No more requests are admitted from it.
    is_over: bool,
    /// The lease no longer exists in the store.
    is_gone: bool,
    last_used: Option<Instant>,
}

/// The latest reply of the store, with the times of the question and of the reply.
#[derive(Clone, Copy, Debug)]
struct LastReply {
    asked: Instant,
    answered: Instant,
    leased: LeaseGrant,
}

impl NodeLease {
    /// Admits a request if the lease is confirmed and has its full estimate, its rates and a slot. `expires_at` is the expiry of
    /// its key, in seconds since the Unix epoch.
    pub(crate) fn allocate(
        &mut self,
        estimate: NanoUsd,
        tokens: u64,
        expires_at: Option<i64>,
        now: Instant,
    ) -> Option<Allocation> {
        let estimate = estimate.max(NanoUsd::ZERO);
        let reply = self.confirmed_reply(now)?;
        let (at_ms, latest_ms) = (
            reply.store_time(reply.answered, now),
            reply.store_time(reply.asked, now),
        );
        let is_today = day_of(reply.leased.since_ms) == day_of(at_ms) && day_of(at_ms) == day_of(latest_ms);
        let is_expired = expires_at.is_some_and(|end| end <= latest_ms.div_euclid(1000));
        self.is_over |= day_of(reply.leased.since_ms) != day_of(at_ms);
        if !is_today || is_expired || self.free() < estimate || self.free() <= NanoUsd::ZERO {
            return None;
        }
        if !self.share.has_room(tokens, self.running()) {
            return None;
        }
        self.share.count_admitted(tokens);
        self.last_number += 1;
        self.allocations.insert(self.last_number, estimate);
        self.allocated = self.allocated.saturating_add(estimate);
        self.last_used = Some(now);
        Some(Allocation {
            number: self.last_number,
            at_ms,
            grant: reply.leased.grant,
        })
    }

    /// Enlarges the allocation of a running request by up to `more` from the free part; returns the growth. Zero if the lease is
    /// not confirmed.
    pub(crate) fn enlarge(&mut self, number: u64, more: NanoUsd, now: Instant) -> NanoUsd {
        if self.confirmed_reply(now).is_none() {
            return NanoUsd::ZERO;
        }
        let more = more.min(self.free()).max(NanoUsd::ZERO);
        self.add(number, more)
    }

    /// A running request asks the store for `more`; [`NodeLease::end_top_up`] follows.
    pub(crate) fn begin_top_up(&mut self, more: NanoUsd) {
        self.asked_for = self.asked_for.saturating_add(more);
    }

    /// The request got `got` of the amount `asked`.
    pub(crate) fn end_top_up(&mut self, number: u64, asked: NanoUsd, got: NanoUsd) {
        self.asked_for = self.asked_for.saturating_sub(asked);
        self.add(number, got);
    }

    fn add(&mut self, number: u64, more: NanoUsd) -> NanoUsd {
        // The request may have ended meanwhile.
        let Some(cut) = self.allocations.get_mut(&number) else {
            return NanoUsd::ZERO;
        };
        *cut = cut.saturating_add(more);
        self.allocated = self.allocated.saturating_add(more);
        more
    }

    /// A request has ended, and a step charges it; `None` if the step could not be recorded.
    pub(crate) fn on_request_ended(&mut self, number: u64, cost: NanoUsd, step: Option<u64>) {
        let Some(cut) = self.allocations.remove(&number) else {
            return;
        };
        self.allocated = self.allocated.saturating_sub(cut);
        let Some(step) = step else {
            self.lost = self.lost.saturating_add(cost);
            return;
        };
        self.owed_total = self.owed_total.saturating_add(cost);
        let is_full = self.owed.len() >= OWED_MAX;
        match self.owed.back_mut().filter(|_| is_full) {
            Some((last, owed)) => (*last, *owed) = (step.max(*last), owed.saturating_add(cost)),
            None => self.owed.push_back((step, cost)),
        }
    }

    /// Ends admission from the lease; its free part is given back.
    pub(crate) fn end(&mut self) {
        self.is_over = true;
    }

    /// The question to ask the store now, if any; [`NodeLease::on_store_reply`] follows. `target` is what should be free.
    pub(crate) fn next_request(&mut self, target: LeaseTarget, now: Instant) -> Option<LeaseRequest> {
        // While the store is unreachable, each lease asks at most four times a second.
        let was_in_vain = self.failed_at.is_some_and(|at| now < at + ASK_INTERVAL);
        if self.is_asking || self.is_gone || was_in_vain {
            return None;
        }
        if self.last_used.is_some_and(|used| now >= used + IDLE_LEASE_MAX) {
            self.end();
        }
        let free = self.free();
        let since = self.last_reply.map(|reply| now.saturating_duration_since(reply.asked));
        let change = if self.is_over {
            let waits = [self.asked_for, self.lost];
            let is_settled = self.allocations.is_empty() && self.owed.is_empty() && waits == [NanoUsd::ZERO; 2];
            match since {
                _ if is_settled => LeaseChange::End,
                _ if free > NanoUsd::ZERO || self.share.has_free_rate() => LeaseChange::Return(free.max(NanoUsd::ZERO)),
                Some(since) if since < self.end_check_interval() => return None,
                _ => LeaseChange::Return(NanoUsd::ZERO),
            }
        } else if self.is_low(target) && since.is_none_or(|since| since >= self.growth_interval()) {
            LeaseChange::Grow(target.amount.saturating_sub(free).max(NanoUsd::ZERO))
        } else if free.saturating_sub(target.amount) > target.amount {
            LeaseChange::Return(free.saturating_sub(target.amount))
        } else if since.is_none_or(|since| since >= ASK_INTERVAL) {
            LeaseChange::Return(NanoUsd::ZERO)
        } else {
            return None;
        };
        if let LeaseChange::Return(amount) = change {
            self.returning = self.returning.saturating_add(amount);
        }
        self.before_growth = matches!(change, LeaseChange::Grow(_)).then_some((self.amount, target));
        self.is_asking = true;
        self.turn += 1;
        self.running_at_request = self.running();
        let free = if self.is_over { RateUse::default() } else { target.rated };
        Some(LeaseRequest {
            turn: self.turn,
            change,
            used: self.share.used(),
            free,
            places: self.share.lower_limits(free, self.running_at_request),
        })
    }

    /// The interval of requests for more: longer where the last one did not help.
    fn growth_interval(&self) -> Duration {
        if self.is_near { ASK_INTERVAL } else { GROW_INTERVAL }
    }

    /// The interval of questions about a lease that is ending: short if nothing runs in it, if a question was not answered, or if
    /// the store counts another number of running requests.
    fn end_check_interval(&self) -> Duration {
        if self.allocations.is_empty() || self.is_unsure || self.running() != self.running_at_request {
            ASK_INTERVAL
        } else {
            KEEP_INTERVAL
        }
    }

    /// The store has answered a question; `None` if no answer came, so that its effect is unknown.
    pub(crate) fn on_store_reply(&mut self, answer: Option<&LeaseReply>, asked: Instant, answered: Instant) {
        self.is_asking = false;
        self.failed_at = answer.is_none().then_some(answered);
        match answer {
            Some(LeaseReply::Held(leased)) => self.on_grant(*leased, asked, answered),
            Some(LeaseReply::Refused | LeaseReply::Gone) => {
                (self.is_over, self.is_gone) = (true, true);
            }
            // What was to be given back counts as returned until the next reply; a late question has no effect after a newer one.
            None => self.is_unsure = true,
        }
    }

    fn on_grant(&mut self, leased: LeaseGrant, asked: Instant, answered: Instant) {
        let watermark = leased.grant.watermark;
        // The lost reply may have been made before a recall. This reply's mark does not show that.
        self.is_over |= self.last_reply.is_none() && self.is_unsure;
        if let Some(before) = &self.last_reply {
            // The leases were recalled, or the store has lost charges to this one.
            self.is_over |= before.leased.recall != leased.recall || before.leased.grant.watermark > watermark;
        }
        self.amount = leased.grant.hold;
        self.share.set_allowance(leased.allowance);
        if let Some((before, target)) = self.before_growth.take() {
            let lacks_money = self.is_short(target.amount) && self.amount <= before;
            self.is_near = lacks_money || self.share.is_low(target.rated, self.running());
        }
        (self.returning, self.is_unsure) = (NanoUsd::ZERO, false);
        while let Some((_, cost)) = self.owed.front().copied().filter(|(step, _)| *step <= watermark) {
            self.owed.pop_front();
            self.owed_total = self.owed_total.saturating_sub(cost);
        }
        self.last_used.get_or_insert(answered);
        self.last_reply = Some(LastReply {
            asked,
            answered,
            leased,
        });
    }

    /// The free part: neither allocated, requested, owed nor being given back.
    pub(crate) fn free(&self) -> NanoUsd {
        let used = [
            self.allocated,
            self.asked_for,
            self.owed_total,
            self.lost,
            self.returning,
        ];
        used.into_iter().fold(self.amount, NanoUsd::saturating_sub)
    }

    /// Whether it should grow: whether less than half of the target is free.
    pub(crate) fn is_low(&self, target: LeaseTarget) -> bool {
        self.is_short(target.amount) || self.share.is_low(target.rated, self.running())
    }

    fn is_short(&self, amount: NanoUsd) -> bool {
        half(amount) > self.free()
    }

    /// The amount that the store holds for it.
    pub(crate) fn amount(&self) -> NanoUsd {
        self.amount
    }

    /// The number of requests that run in it.
    pub(crate) fn running(&self) -> u64 {
        u64::try_from(self.allocations.len()).unwrap_or(u64::MAX)
    }

    /// Whether no more requests are admitted from it.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over
    }

    /// Whether it can be dropped.
    pub(crate) fn is_done(&self) -> bool {
        self.is_gone && self.allocations.is_empty()
    }

    fn confirmed_reply(&self, now: Instant) -> Option<LastReply> {
        self.last_reply
            .filter(|reply| !self.is_over && now.saturating_duration_since(reply.asked) < CONFIRMED_FOR)
    }
}

impl LastReply {
    /// The store's time at `now`, if it made the reply at `made`.
    fn store_time(&self, made: Instant, now: Instant) -> i64 {
        let since = now.saturating_duration_since(made).as_millis();
        let since = i64::try_from(since).unwrap_or(i64::MAX);
        self.leased.grant.at_ms.saturating_add(since)
    }
}

fn half(amount: NanoUsd) -> NanoUsd {
    NanoUsd::from_nanos(amount.nanos() / 2)
}

/// One in four of the requests expected while a lease should last needs a slot of its own, in addition to those that run.
const PART_AT_ONCE: u64 = 4;

/// A lease's part of rates and slots, at its node. It has no limits until the first reply of the store, which states how much may
/// be admitted in total since the lease began, and how many requests may run in it. A node that wants less observes the lower
/// limits from the moment it asks, whether or not the question succeeds; a node that wants more waits for the reply.
#[derive(Clone, Copy, Debug, Default)]
struct RateShare {
    used: RateUse,
    allowance: LeaseAllowance,
}

impl RateShare {
    /// Whether one more request may be admitted while `running` requests run.
    fn has_room(&self, tokens: u64, running: u64) -> bool {
        let free = self.free(running);
        let is_there = |free: Option<u64>, wanted| free.is_none_or(|free| free >= wanted);
        is_there(free.requests, 1) && is_there(free.tokens, tokens) && is_there(free.places, 1)
    }

    /// Counts an admitted request.
    fn count_admitted(&mut self, tokens: u64) {
        self.used = self.used.saturating_add(RateUse { requests: 1, tokens });
    }

    /// The requests and tokens admitted since the lease began.
    fn used(&self) -> RateUse {
        self.used
    }

    /// Whether less than half of the target is free.
    fn is_low(&self, target: RateUse, running: u64) -> bool {
        let free = self.free(running);
        let is_low = |free: Option<u64>, wanted: u64| free.is_some_and(|free| free < wanted.div_ceil(2));
        is_low(free.requests, target.requests)
            || is_low(free.tokens, target.tokens)
            || is_low(free.places, spare_places(target))
    }

    /// Whether a rate has an unused part to give back.
    fn has_free_rate(&self) -> bool {
        let free = self.free(0);
        [free.requests, free.tokens].into_iter().flatten().any(|free| free > 0)
    }

    /// Lowers the limits to what the node wants from now on, with `target` free. Returns the slots to ask for.
    fn lower_limits(&mut self, target: RateUse, running: u64) -> u64 {
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
    fn set_allowance(&mut self, allowance: LeaseAllowance) {
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
mod share_tests {
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
