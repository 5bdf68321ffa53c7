//! A lease at the node that admits requests from the lease.
//!
//! The free part of a lease is the amount that the store last reported, minus four amounts: the allocations of the requests in
//! the lease; the costs of ended requests whose steps the store has not applied; the amount that is being returned; and the
//! amount that is being requested for running requests. A reply of the store contains the amount and the number of the last
//! applied step, both of the same moment. So each reply corrects the free part, even if requests end in the meantime. Only one
//! call to the store about a lease runs at a time.
//!
//! Requests are admitted from a lease only within one second after the start of the last call to which the store has replied. So
//! after an operator has changed the terms, requests are admitted under the old terms for at most one second. The time limit also
//! ensures that no request is admitted from a lease whose budget the store has given to other requests. The store does this only
//! after the lease's holder has made no call for `LEASE_MS`.

#[cfg(test)]
mod tests;

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use crate::domain::{
    QuickMap,
    ledger::{
        Grant,
        lease::{LeaseAllowance, LeaseChange, LeaseGrant, LeaseReply, RateUse, day_of},
    },
    money::NanoUsd,
};

/// The time for which requests are admitted from the lease, counted from the start of the last call to which the store has
/// replied.
pub(crate) const CONFIRMED_FOR: Duration = Duration::from_secs(1);
/// The interval between calls about a lease that is in use: a quarter of [`CONFIRMED_FOR`].
pub(crate) const ASK_INTERVAL: Duration = Duration::from_millis(250);
/// The interval between calls about a lease that is ending and still has running requests: a third of the node lease.
pub(crate) const KEEP_INTERVAL: Duration = Duration::from_secs(10);
/// The minimum interval between two calls that request growth.
pub(crate) const GROW_INTERVAL: Duration = Duration::from_millis(20);
/// The time after which an unused lease is returned.
pub(crate) const IDLE_LEASE_MAX: Duration = Duration::from_secs(2);
/// The maximum number of costs that are stored separately until the store has applied them. Further costs are added to the last
/// cost that is stored separately.
const OWED_MAX: usize = 1_024;

/// The part of a lease that should be free.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LeaseTarget {
    /// The free amount, for the estimates of further requests.
    pub(crate) amount: NanoUsd,
    /// The free requests and tokens, if rates are limited.
    pub(crate) rated: RateUse,
}

/// The next call to the store about a lease, with the fields of [`super::LeaseCall`] that change from call to call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LeaseRequest {
    pub(crate) turn: u64,
    pub(crate) change: LeaseChange,
    pub(crate) used: RateUse,
    pub(crate) free: RateUse,
    pub(crate) places: u64,
}

/// The part of a lease that one request takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Allocation {
    /// The number of the request within the lease.
    pub(crate) number: u64,
    /// The time of the admission by the store's clock, in milliseconds since the Unix epoch.
    pub(crate) at_ms: i64,
    /// The state of the key and the account in the store's last reply. `hold` is the lease's amount.
    pub(crate) grant: Grant,
}

/// A lease at its node. The default value is a lease for which the node has not called the store yet.
#[derive(Clone, Debug, Default)]
pub(crate) struct NodeLease {
    /// The amount that the store last reported.
    amount: NanoUsd,
    last_reply: Option<LastReply>,
    share: RateShare,
    allocations: QuickMap<u64, NanoUsd>,
    allocated: NanoUsd,
    last_number: u64,
    /// The total that running requests are requesting from the store, because the free part was too small.
    asked_for: NanoUsd,
    /// The costs of ended requests whose steps the store has not applied, each with the number of its step.
    owed: VecDeque<(u64, NanoUsd)>,
    owed_total: NanoUsd,
    /// The total cost of requests whose steps could not be recorded.
    lost: NanoUsd,
    /// The amount that is being returned to the store.
    returning: NanoUsd,
    /// The sequence number of the last call.
    turn: u64,
    /// The number of requests that were running in the lease at the last call.
    running_at_request: u64,
    is_asking: bool,
    /// Whether the last call got no reply. If so, the store may have set aside more for the lease than it has reported.
    is_unsure: bool,
    /// The time at which the last call failed; `None` if the last call got a reply.
    failed_at: Option<Instant>,
    /// The amount before the last call that requested growth, and the target of that call.
    before_growth: Option<(NanoUsd, LeaseTarget)>,
    /// Whether the last call for growth did not bring enough money, rates or slots.
    is_near: bool,
    /// Whether admission from the lease has ended.
    is_over: bool,
    /// Whether the lease no longer exists in the store.
    is_gone: bool,
    last_used: Option<Instant>,
}

/// The last reply of the store, with the times of the call and of the reply.
#[derive(Clone, Copy, Debug)]
struct LastReply {
    asked: Instant,
    answered: Instant,
    leased: LeaseGrant,
}

impl NodeLease {
    /// Admits a request and returns its allocation. `None` if the lease is not confirmed or lacks the estimated amount, the rates
    /// or a slot. `expires_at` is the time at which the request's key expires, in seconds since the Unix epoch; `None` if it
    /// never expires.
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

    /// Enlarges the allocation of a running request by up to `more`, from the free part. Returns the amount by which it has
    /// grown, which is zero if the lease is not confirmed.
    pub(crate) fn enlarge(&mut self, number: u64, more: NanoUsd, now: Instant) -> NanoUsd {
        if self.confirmed_reply(now).is_none() {
            return NanoUsd::ZERO;
        }
        let more = more.min(self.free()).max(NanoUsd::ZERO);
        self.add(number, more)
    }

    /// Records that a running request requests `more` from the store. The caller must call [`NodeLease::end_top_up`] afterwards.
    pub(crate) fn begin_top_up(&mut self, more: NanoUsd) {
        self.asked_for = self.asked_for.saturating_add(more);
    }

    /// Records that the store has granted the amount `got` to the request, which has requested the amount `asked`.
    pub(crate) fn end_top_up(&mut self, number: u64, asked: NanoUsd, got: NanoUsd) {
        self.asked_for = self.asked_for.saturating_sub(asked);
        self.add(number, got);
    }

    fn add(&mut self, number: u64, more: NanoUsd) -> NanoUsd {
        // The request may have ended in the meantime.
        let Some(cut) = self.allocations.get_mut(&number) else {
            return NanoUsd::ZERO;
        };
        *cut = cut.saturating_add(more);
        self.allocated = self.allocated.saturating_add(more);
        more
    }

    /// Records that a request has ended with this cost. `step` is the number of the step that charges it; `None` if the step
    /// could not be recorded.
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

    /// Ends admission from the lease. Its free part will be returned.
    pub(crate) fn end(&mut self) {
        self.is_over = true;
    }

    /// Returns the call that must be made to the store now; `None` if no call is due. The caller must pass the store's reply to
    /// [`NodeLease::on_store_reply`]. `target` is the part of the lease that should be free.
    pub(crate) fn next_request(&mut self, target: LeaseTarget, now: Instant) -> Option<LeaseRequest> {
        // While the store is unreachable, at most four calls per second are made about each lease.
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

    /// Returns the interval between calls for growth. It is longer if the last call for growth did not bring enough.
    fn growth_interval(&self) -> Duration {
        if self.is_near { ASK_INTERVAL } else { GROW_INTERVAL }
    }

    /// Returns the interval between calls about a lease that is ending. It is short if no request is running in the lease, if the
    /// last call got no reply, or if the number of running requests has changed since the last call.
    fn end_check_interval(&self) -> Duration {
        if self.allocations.is_empty() || self.is_unsure || self.running() != self.running_at_request {
            ASK_INTERVAL
        } else {
            KEEP_INTERVAL
        }
    }

    /// Records the store's reply to a call. `answer` is `None` if no reply arrived. In this case, it is unknown whether the call
    /// had an effect.
    pub(crate) fn on_store_reply(&mut self, answer: Option<&LeaseReply>, asked: Instant, answered: Instant) {
        self.is_asking = false;
        self.failed_at = answer.is_none().then_some(answered);
        match answer {
            Some(LeaseReply::Held(leased)) => self.on_grant(*leased, asked, answered),
            Some(LeaseReply::Refused | LeaseReply::Gone) => {
                (self.is_over, self.is_gone) = (true, true);
            }
            // The amount that was to be returned is treated as returned until the next reply. If the call reaches the store after
            // a newer one, it has no effect.
            None => self.is_unsure = true,
        }
    }

    fn on_grant(&mut self, leased: LeaseGrant, asked: Instant, answered: Instant) {
        let watermark = leased.grant.watermark;
        // The call without a reply may have begun the lease before a recall. The recall mark in this reply does not reveal that.
        self.is_over |= self.last_reply.is_none() && self.is_unsure;
        if let Some(before) = &self.last_reply {
            // The leases were recalled, or the store has lost charges.
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

    /// Returns the free part: the amount that is not allocated, requested, owed or being returned.
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

    /// Whether the lease should grow, because less than half of the target is free.
    pub(crate) fn is_low(&self, target: LeaseTarget) -> bool {
        self.is_short(target.amount) || self.share.is_low(target.rated, self.running())
    }

    fn is_short(&self, amount: NanoUsd) -> bool {
        half(amount) > self.free()
    }

    /// Returns the amount that the store has set aside for the lease.
    pub(crate) fn amount(&self) -> NanoUsd {
        self.amount
    }

    /// Returns the number of requests that are running in the lease.
    pub(crate) fn running(&self) -> u64 {
        u64::try_from(self.allocations.len()).unwrap_or(u64::MAX)
    }

    /// Whether admission from the lease has ended.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over
    }

    /// Whether the lease can be dropped.
    pub(crate) fn is_done(&self) -> bool {
        self.is_gone && self.allocations.is_empty()
    }

    fn confirmed_reply(&self, now: Instant) -> Option<LastReply> {
        self.last_reply
            .filter(|reply| !self.is_over && now.saturating_duration_since(reply.asked) < CONFIRMED_FOR)
    }
}

impl LastReply {
    /// Returns the store's time at `now`, on the assumption that the store sent its reply at `made`.
    fn store_time(&self, made: Instant, now: Instant) -> i64 {
        let since = now.saturating_duration_since(made).as_millis();
        let since = i64::try_from(since).unwrap_or(i64::MAX);
        self.leased.grant.at_ms.saturating_add(since)
    }
}

fn half(amount: NanoUsd) -> NanoUsd {
    NanoUsd::from_nanos(amount.nanos() / 2)
}

/// The number of expected requests per free slot: with 4, a lease should have one free slot for every four expected requests. The
/// expected requests are those in the time for which the lease should suffice. Running requests occupy further slots.
const PART_AT_ONCE: u64 = 4;

/// The rates and slots of a lease at its node. There are no limits until the store's first reply. A reply contains the total
/// number of requests and tokens that may be admitted, counted from the lease's beginning, and the maximum number of running
/// requests. If the node wants less, the lower limits apply as soon as the node begins its call, even if the call fails. If the
/// node wants more, it must wait for the reply.
#[derive(Clone, Copy, Debug, Default)]
struct RateShare {
    used: RateUse,
    allowance: LeaseAllowance,
}

impl RateShare {
    /// Whether one more request with `tokens` tokens can be admitted while `running` requests are running.
    fn has_room(&self, tokens: u64, running: u64) -> bool {
        let free = self.free(running);
        let is_there = |free: Option<u64>, wanted| free.is_none_or(|free| free >= wanted);
        is_there(free.requests, 1) && is_there(free.tokens, tokens) && is_there(free.places, 1)
    }

    /// Records an admitted request.
    fn count_admitted(&mut self, tokens: u64) {
        self.used = self.used.saturating_add(RateUse { requests: 1, tokens });
    }

    /// Returns the requests and tokens that were admitted since the lease began.
    fn used(&self) -> RateUse {
        self.used
    }

    /// Whether less than half of the target is free, for requests, tokens or slots.
    fn is_low(&self, target: RateUse, running: u64) -> bool {
        let free = self.free(running);
        let is_low = |free: Option<u64>, wanted: u64| free.is_some_and(|free| free < wanted.div_ceil(2));
        is_low(free.requests, target.requests)
            || is_low(free.tokens, target.tokens)
            || is_low(free.places, spare_places(target))
    }

    /// Whether the lease has unused requests or tokens that can be returned.
    fn has_free_rate(&self) -> bool {
        let free = self.free(0);
        [free.requests, free.tokens].into_iter().flatten().any(|free| free > 0)
    }

    /// Lowers the limits to the node's current needs: the used part, and `target` as the free part. Returns the number of slots
    /// to request.
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

    /// Replaces the limits with those in a reply of the store.
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

/// Returns the number of slots that should be free; zero if no further requests are expected.
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
