//! This node's own counts for one key or account: the running requests, the charges since the store's last reply, and the money
//! committed by grace.

use std::{
    collections::VecDeque,
    sync::atomic::{AtomicI64, AtomicU64, Ordering},
};

use crate::{
    domain::{
        ledger::{
            Denial, LimitScope, RateKind, RateLimits,
            account::bucket::RateBuckets,
            consumption::{Row, UsageSource},
            lease::RateUse,
        },
        money::NanoUsd,
    },
    money::billing::Billing,
};

/// Maximum number of charges that are stored separately. Further ones are added to the last.
pub(super) const CHARGES_MAX: usize = 16;
/// This node predicts a denial by a rate limit only if the wait is longer than this, in milliseconds.
const PREDICTED_WAIT_MS_MIN: u64 = 250;

/// The counts of one key or account.
#[derive(Debug, Default)]
pub(super) struct LocalCounts {
    running: u64,
    held: NanoUsd,
    /// Charges that are not included in the store's last reply, each with the number of its step.
    charges: VecDeque<(u64, NanoUsd)>,
    buckets: RateBuckets,
    /// The denial by a rate limit that the store reported, and the end of its wait in milliseconds since the Unix epoch; `None`
    /// if the store has reported none.
    wait: Option<(Denial, i64)>,
    grace_held: NanoUsd,
    grace_spent: NanoUsd,
    /// The time of the store's last reply for this key or account, in milliseconds since the Unix epoch.
    pub(super) last_reply_ms: i64,
}

/// The amounts that an admitted request adds to the counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CountedRequest {
    /// The request's hold at its admission.
    pub(super) hold: NanoUsd,
    /// Whether the request was admitted by grace.
    pub(super) by_grace: bool,
}

/// The data about a request's end that changes the counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SettledCharge {
    /// The number of the step that charges the request; `None` if the step could not be recorded.
    pub(super) step: Option<u64>,
    pub(super) cost: NanoUsd,
    pub(super) tokens_estimated: u64,
    pub(super) tokens_used: u64,
}

impl LocalCounts {
    /// Creates counts without any request. `last_reply_ms` is the time of the store's last reply.
    pub(super) fn new(last_reply_ms: i64) -> Self {
        Self {
            last_reply_ms,
            ..Self::default()
        }
    }

    /// Records a reply of the store that includes this node's steps up to `watermark`.
    pub(super) fn on_reply(&mut self, watermark: u64, now_ms: i64) {
        while self.charges.front().is_some_and(|(step, _)| *step <= watermark) {
            self.charges.pop_front();
        }
        (self.wait, self.grace_spent, self.last_reply_ms) = (None, NanoUsd::ZERO, now_ms);
    }

    /// Records a rate limit that the store has reported.
    pub(super) fn on_rate_limited(&mut self, denied: Denial, retry_after_ms: u64, now_ms: i64) {
        let wait = i64::try_from(retry_after_ms).unwrap_or(i64::MAX);
        (self.wait, self.last_reply_ms) = (Some((denied, now_ms.saturating_add(wait))), now_ms);
    }

    /// Records the start of a request. `buckets` contains this node's rate buckets after the request; `None` leaves the buckets
    /// unchanged.
    pub(super) fn begin(&mut self, seat: CountedRequest, buckets: Option<RateBuckets>) {
        self.running += 1;
        self.held = self.held.saturating_add(seat.hold);
        if seat.by_grace {
            self.grace_held = self.grace_held.saturating_add(seat.hold);
        }
        if let Some(buckets) = buckets {
            self.buckets = buckets;
        }
    }

    /// Records the end of a request.
    pub(super) fn end(&mut self, seat: CountedRequest, end: &SettledCharge, rates: &RateLimits) {
        self.running = self.running.saturating_sub(1);
        self.held = self.held.saturating_sub(seat.hold);
        if seat.by_grace {
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

    /// The sum of this node's holds, and of its charges that the store's last reply does not include.
    pub(super) fn owed(&self) -> NanoUsd {
        let charged = self.charges.iter().map(|(_, cost)| *cost);
        charged.fold(self.held, NanoUsd::saturating_add)
    }

    /// The sum of the holds and charges of requests that were admitted by grace.
    pub(super) fn grace_committed(&self) -> NanoUsd {
        self.grace_held.saturating_add(self.grace_spent)
    }

    /// Whether no request is running.
    pub(super) fn is_idle(&self) -> bool {
        self.running == 0
    }

    /// Checks the concurrency limit.
    pub(super) fn check_running(&self, scope: LimitScope, rates: &RateLimits) -> Result<(), Denial> {
        match rates.concurrency {
            Some(limit) if self.running >= limit => Err(Denial::Concurrency {
                scope,
                limit,
                lent: false,
            }),
            _ => Ok(()),
        }
    }

    /// Returns this node's rate buckets after one more request, or the denial by the rate limit that the request exceeds.
    pub(super) fn reserve(
        &self,
        scope: LimitScope,
        rates: &RateLimits,
        tokens: u64,
        now_ms: i64,
    ) -> Result<RateBuckets, Denial> {
        if let Some((mut denied, until_ms)) = self.wait
            && let Denial::RateLimited {
                counted,
                limit,
                retry_after_ms,
                ..
            } = &mut denied
        {
            let now = match counted {
                RateKind::Requests => rates.rpm,
                RateKind::Tokens => rates.tpm,
            };
            if until_ms > now_ms && now == Some(*limit) {
                *retry_after_ms = until_ms.abs_diff(now_ms);
                return Err(denied);
            }
        }
        self.buckets.reserve(scope, rates, tokens, RateUse::default(), now_ms)
    }

    /// Returns the denial that any request would get now. Ignores a rate limit whose wait ends within [`PREDICTED_WAIT_MS_MIN`],
    /// because the store's clock may be slightly ahead of this node's. If the store has reported a wait because of a token limit,
    /// ignores that too, because a request with fewer tokens may not have to wait.
    pub(super) fn predict_denial(&self, scope: LimitScope, rates: &RateLimits, now_ms: i64) -> Option<Denial> {
        if let Err(denied) = self.check_running(scope, rates) {
            return Some(denied);
        }
        let waits_for_tokens = matches!(
            self.wait,
            Some((
                Denial::RateLimited {
                    counted: RateKind::Tokens,
                    ..
                },
                _
            ))
        );
        let taken = match waits_for_tokens {
            true => self.buckets.reserve(scope, rates, 0, RateUse::default(), now_ms),
            false => self.reserve(scope, rates, 0, now_ms),
        };
        taken.err().filter(|denied| match denied {
            Denial::RateLimited { retry_after_ms, .. } => *retry_after_ms > PREDICTED_WAIT_MS_MIN,
            _ => true,
        })
    }

    /// Counts a refused request against the rate limit, unless the limit is already reached.
    pub(super) fn count_refused(&mut self, rates: &RateLimits, now_ms: i64) {
        if let Ok(buckets) = self
            .buckets
            .reserve(LimitScope::Key, rates, 0, RateUse::default(), now_ms)
        {
            self.buckets = buckets;
        }
    }
}

impl Billing {
    /// The number of accounts whose balance was low when the store last reported it.
    pub(crate) fn low_accounts(&self) -> usize {
        self.engine.grace.low_accounts()
    }

    /// The number of running requests.
    #[cfg(test)]
    pub(crate) fn running(&self) -> usize {
        self.engine.running.len()
    }

    /// The sum of the running requests' holds.
    pub(crate) fn held(&self) -> NanoUsd {
        self.engine.running.held()
    }

    /// The money that this node has committed by grace and the store has not charged yet.
    pub(crate) fn grace_committed(&self) -> NanoUsd {
        self.engine.grace.committed()
    }

    /// Whether this node could admit any request by grace if the store became unreachable now.
    pub(crate) fn has_grace(&self) -> bool {
        self.engine.grace.can_admit_any()
    }

    /// The number of rows charged since the start of the process, by the source of their usage.
    pub(crate) fn rows(&self) -> impl Iterator<Item = (UsageSource, u64)> {
        self.engine.counters.rows()
    }

    /// The sum charged since the start of the process.
    pub(crate) fn charged(&self) -> NanoUsd {
        NanoUsd::from_nanos(self.engine.counters.cost.load(Ordering::Relaxed))
    }

    /// The maximum amount by which a charge has exceeded its hold since the start of the process. When a quota is exhausted, each
    /// running request can exceed the quota by about this amount.
    pub(crate) fn excess_max(&self) -> NanoUsd {
        NanoUsd::from_nanos(self.engine.counters.excess_max.load(Ordering::Relaxed))
    }

    /// The number of records that could not be written since the start of the process.
    pub(crate) fn failures(&self) -> u64 {
        let failed = self.engine.counters.failed.load(Ordering::Relaxed);
        failed.saturating_add(self.engine.unconfirmed.dropped())
    }

    /// The number of requests admitted from leases since the start of the process.
    pub(crate) fn lease_admissions(&self) -> u64 {
        self.engine.counters.lease_admissions.load(Ordering::Relaxed)
    }

    /// The number of leases, and the amount that the store holds for them.
    pub(crate) fn leases(&self) -> (usize, NanoUsd) {
        let figures = self.engine.leases.figures();
        (figures.leases, figures.amount)
    }

    /// The number of requests admitted by grace since the start of the process.
    pub(crate) fn grace_admissions(&self) -> u64 {
        self.engine.counters.grace_admissions.load(Ordering::Relaxed)
    }
}

/// Counts of charges, failures and admissions since the start of the process.
#[derive(Debug, Default)]
pub(super) struct BillingCounters {
    /// The number of rows by the source of their usage, in the order of [`UsageSource::ALL`].
    rows: [AtomicU64; UsageSource::ALL.len()],
    pub(super) cost: AtomicI64,
    pub(super) failed: AtomicU64,
    pub(super) excess_max: AtomicI64,
    pub(super) grace_admissions: AtomicU64,
    pub(super) lease_admissions: AtomicU64,
}

impl BillingCounters {
    /// Records the charge of a request whose hold was `hold`.
    pub(super) fn record_charge(&self, row: &Row, hold: NanoUsd) {
        for (_, rows) in self.by_source().filter(|(source, _)| *source == row.usage_source) {
            rows.fetch_add(1, Ordering::Relaxed);
        }
        let cost = row.cost_nano_usd;
        self.cost.fetch_add(cost.nanos(), Ordering::Relaxed);
        let excess = cost.saturating_sub(hold).nanos();
        self.excess_max.fetch_max(excess, Ordering::Relaxed);
    }

    /// Counts a record that could not be written to the journal.
    pub(super) fn record_failure(&self) {
        self.failed.fetch_add(1, Ordering::Relaxed);
    }

    /// The number of rows charged, by the source of their usage.
    pub(super) fn rows(&self) -> impl Iterator<Item = (UsageSource, u64)> {
        self.by_source()
            .map(|(source, count)| (source, count.load(Ordering::Relaxed)))
    }

    fn by_source(&self) -> impl Iterator<Item = (UsageSource, &AtomicU64)> {
        UsageSource::ALL.into_iter().zip(&self.rows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nanos(amount: i64) -> NanoUsd {
        NanoUsd::from_nanos(amount)
    }

    fn ended(step: u64, cost: i64) -> SettledCharge {
        SettledCharge {
            step: Some(step),
            cost: nanos(cost),
            tokens_estimated: 0,
            tokens_used: 0,
        }
    }

    const SEAT: CountedRequest = CountedRequest {
        hold: NanoUsd::from_nanos(10),
        by_grace: true,
    };

    #[test]
    fn what_the_store_has_taken_over_is_owed_no_more() {
        let mut tally = LocalCounts::default();
        for step in 1..=3 {
            tally.begin(SEAT, None);
            tally.end(SEAT, &ended(step, 5), &RateLimits::default());
        }
        tally.begin(SEAT, None);
        assert_eq!((tally.owed(), tally.grace_committed()), (nanos(25), nanos(25)));
        tally.on_reply(2, 1);
        assert_eq!((tally.owed(), tally.grace_committed()), (nanos(15), nanos(10)));
        tally.on_reply(3, 2);
        assert_eq!(tally.owed(), nanos(10));
    }

    #[test]
    fn charges_beyond_the_most_that_are_remembered_are_owed_all_the_same() {
        let mut tally = LocalCounts::default();
        let many = CHARGES_MAX as u64 + 50;
        for step in 1..=many {
            tally.end(SEAT, &ended(step, 1), &RateLimits::default());
        }
        assert_eq!(tally.charges.len(), CHARGES_MAX);
        let owed = |tally: &LocalCounts| tally.owed().saturating_sub(tally.held);
        assert_eq!(owed(&tally), nanos(CHARGES_MAX as i64 + 50));
        tally.on_reply(many - 1, 1);
        assert_eq!(owed(&tally), nanos(51), "those that are added up go together");
        tally.on_reply(many, 1);
        assert_eq!(owed(&tally), nanos(0));
    }

    #[test]
    fn a_limit_that_the_store_has_named_holds_until_its_time_or_another_limit() {
        let mut tally = LocalCounts::default();
        let denied = |retry_after_ms| Denial::RateLimited {
            scope: LimitScope::Key,
            counted: RateKind::Requests,
            limit: 3,
            retry_after_ms,
            lent: false,
        };
        tally.on_rate_limited(denied(700), 700, 1_000);
        let rates = |rpm| RateLimits {
            rpm: Some(rpm),
            ..RateLimits::default()
        };
        assert_eq!(tally.reserve(LimitScope::Key, &rates(3), 1, 1_200), Err(denied(500)));
        assert!(tally.reserve(LimitScope::Key, &rates(4), 1, 1_200).is_ok());
        assert!(tally.reserve(LimitScope::Key, &rates(3), 1, 1_700).is_ok());
        tally.on_reply(0, 1_200);
        assert!(tally.reserve(LimitScope::Key, &rates(3), 1, 1_200).is_ok());
    }
}
