//! Rates and slots: the limits per minute and the concurrency limits of a key and its account, and the parts of them that leases
//! have.
//!
//! **The part of a lease.** If the key or the account has a limit per minute, a lease is given requests or tokens in advance,
//! which are deducted from the buckets. `given` is the number of requests or tokens that the lease was given since it began. The
//! holder of the lease reports how many of them are `used`. The rest is lent. If the key or the account has a concurrency limit,
//! the lease has slots (`places`). Its free slots are lent, and count as occupied. Nothing is lent for a limit that is not set.
//!
//! **A call about a lease** first refills the buckets, taking into account the part that was lent before the call. `used` is the
//! highest number reported
//! so far, and `given` is at least `used`. The lent part that the holder does not want is put back into the buckets. With
//! [`LeaseChange::Grow`], the lease is given the missing part, but at most the lower of two maxima. The first is
//! 1/[`PART_OF_LEFT`] of the remaining requests, tokens or slots. The second is 1/[`ALL_PART_OF_LEFT`] of them; everything that
//! is lent is subtracted from this second maximum. The maxima of the key and those of the account both apply. The lease is given
//! nothing if the result is less than 1/[`PART_OF_WANTED`] of the missing part, or if less than half of a limit remains. A lease
//! begins only if it is given some of every missing part.
//!
//! **The end** of a lease puts its lent part back. If the node lease of its holder lapses, the lent part is not put back, but the
//! buckets refill.
//!
//! **Nearness.** A rate or the slots are near when the lent part is larger than the part that remains. The key and the account
//! are checked
//! before each request is admitted or refused. When a limit of one of them becomes near, the recall mark rises once. When a lease
//! of the key begins, the nearness ends for the key and for the account.

use super::{
    Account,
    bucket::RateBuckets,
    holds::{LeaseHold, LentRates},
    key::{AccountKey, KeyMirror},
};
use crate::domain::{
    keys::{KeyId, terms::RateLimits},
    ledger::{
        AdmitCall, Denial, LimitScope,
        lease::{ALL_PART_OF_LEFT, LeaseAllowance, LeaseCall, LeaseChange, PART_OF_LEFT, PART_OF_WANTED, RateUse},
    },
};

/// The rate limits of a key or an account, with their buckets and running requests at one moment.
struct RateState {
    rates: RateLimits,
    buckets: RateBuckets,
    running: u64,
    lent: LentRates,
}

/// The rates and slots of a lease after a node's call about the lease, and the resulting rate buckets of the key and the account.
pub(super) struct LeasedRates {
    /// The state of the lease after the call.
    pub(super) lease: LeaseHold,
    /// Whether the lease was given some of every missing part.
    pub(super) is_whole: bool,
    key: RateBuckets,
    account: RateBuckets,
}

impl Account {
    /// Returns the rate buckets of the key and the account after a request. The error is the limit that was reached.
    pub(super) fn check_rates(
        &self,
        ask: &AdmitCall,
        of_key: &RateLimits,
        now_ms: i64,
    ) -> Result<(RateBuckets, RateBuckets), Denial> {
        let of_account = self
            .summary
            .as_ref()
            .map(|it| it.record.terms.rates)
            .unwrap_or_default();
        let (lent_key, lent) = (self.holds.lent_key(&ask.key.id), self.holds.lent());
        let running = self.holds.running_key(&ask.node, &ask.key.id, ask.ended_key);
        check_concurrency(LimitScope::Key, of_key.concurrency, running, lent_key)?;
        let running = self.holds.running(&ask.node, ask.ended_account);
        check_concurrency(LimitScope::Account, of_account.concurrency, running, lent)?;
        let full = RateBuckets::default();
        let key = self.keys.get(&ask.key.id).map_or(&full, AccountKey::buckets);
        let key = key.reserve(LimitScope::Key, of_key, ask.tokens, lent_key.rated, now_ms)?;
        let account = (self.buckets).reserve(LimitScope::Account, &of_account, ask.tokens, lent.rated, now_ms)?;
        Ok((key, account))
    }

    /// Records whether a rate or the slots of the key or of the account are near. Returns whether one of them has just become
    /// near.
    pub(super) fn record_near_rates(&mut self, key: &KeyId, mirror: &KeyMirror, now_ms: i64) -> bool {
        if self.summary.is_none() || self.holds.lent() == LentRates::default() {
            return false;
        }
        let [of_key, of_account] = self.rate_states(key, &mirror.terms.rates, now_ms);
        let near = [(Some(key), of_key.is_near()), (None, of_account.is_near())];
        let near = near.map(|(of, is_near)| (of, is_near && !self.recall.has_near_rate(of)));
        for (of, _) in near.into_iter().filter(|(_, comes_near)| *comes_near) {
            self.recall.set_rate_near(of);
        }
        near.iter().any(|(_, comes_near)| *comes_near)
    }

    /// Computes the rates and slots that a lease has after a node's call about it. [`Account::store_rates`] stores the resulting
    /// buckets.
    pub(super) fn plan_rates(&self, ask: &LeaseCall, before: LeaseHold, may_grow: bool, now_ms: i64) -> LeasedRates {
        let terms = self.keys.get(&ask.key).map(AccountKey::terms).unwrap_or_default();
        let [mut key, mut account] = self.rate_states(&ask.key, &terms.rates, now_ms);
        let (of_key, of_account) = (key.lendable(), account.lendable());
        let part = |of: fn(&LeaseAllowance) -> Option<u64>| {
            let part = [of(&of_key), of(&of_account)].into_iter().flatten().min();
            part.map(|part| if may_grow { part } else { 0 })
        };
        let used = ask.used.max(before.used);
        let lent = before.given.max(used).saturating_sub(used);
        let (free, places) = match ask.change {
            LeaseChange::End => (RateUse::default(), 0),
            LeaseChange::Grow(_) | LeaseChange::Return(_) => (ask.free, ask.places),
        };
        let requests = part_change(lent.requests, free.requests, part(|it| it.requests)).unwrap_or_default();
        let tokens = part_change(lent.tokens, free.tokens, part(|it| it.tokens)).unwrap_or_default();
        let places = part_change(before.places, places, part(|it| it.places)).unwrap_or(LeasePartChange {
            after: ask.running,
            ..LeasePartChange::default()
        });
        let lent = RateUse {
            requests: requests.after,
            tokens: tokens.after,
        };
        for pace in [&mut key, &mut account] {
            let (more, back) = (
                rate_use(&requests, &tokens, |it| it.more),
                rate_use(&requests, &tokens, |it| it.back),
            );
            pace.buckets.lend(&pace.rates, more, back);
        }
        LeasedRates {
            lease: LeaseHold {
                running: ask.running,
                turn: ask.turn,
                used,
                given: used.saturating_add(lent),
                places: places.after,
            },
            is_whole: requests.is_whole && tokens.is_whole && places.is_whole,
            key: key.buckets,
            account: account.buckets,
        }
    }

    /// Stores the buckets that [`Account::plan_rates`] has computed.
    pub(super) fn store_rates(&mut self, key: &KeyId, paced: &LeasedRates) {
        self.buckets = paced.account.clone();
        if let Some(key) = self.keys.get_mut(key) {
            key.set_buckets(paced.key.clone());
        }
    }

    /// Returns the numbers of requests, tokens and slots that the lease allows its holder to use.
    pub(super) fn lease_allowance(&self, key: &KeyId, lease: &LeaseHold) -> LeaseAllowance {
        let key = self.keys.get(key).map(AccountKey::terms).unwrap_or_default().rates;
        let account = self
            .summary
            .as_ref()
            .map(|it| it.record.terms.rates)
            .unwrap_or_default();
        let is_limited = |of: fn(&RateLimits) -> Option<u64>| of(&key).is_some() || of(&account).is_some();
        LeaseAllowance {
            requests: is_limited(|it| it.rpm).then_some(lease.given.requests),
            tokens: is_limited(|it| it.tpm).then_some(lease.given.tokens),
            places: is_limited(|it| it.concurrency).then_some(lease.places),
        }
    }

    /// Returns the state of the key's rates and that of the account's rates, in this order.
    fn rate_states(&self, key: &KeyId, of_key: &RateLimits, now_ms: i64) -> [RateState; 2] {
        let of_account = self
            .summary
            .as_ref()
            .map(|it| it.record.terms.rates)
            .unwrap_or_default();
        let full = RateBuckets::default();
        let buckets = self.keys.get(key).map_or(&full, AccountKey::buckets);
        let pace = |rates: &RateLimits, buckets: &RateBuckets, running, lent: LentRates| RateState {
            rates: *rates,
            buckets: buckets.refilled_at(rates, lent.rated, now_ms),
            running,
            lent,
        };
        let running_key = self.holds.live_key_totals(key, now_ms).1;
        let running = self.holds.live_totals(now_ms).1;
        [
            pace(of_key, buckets, running_key, self.holds.lent_key(key)),
            pace(&of_account, &self.buckets, running, self.holds.lent()),
        ]
    }
}

impl RateState {
    /// Returns the number of free slots that are not lent; `None` if there is no concurrency limit.
    fn free_places(&self) -> Option<u64> {
        let taken = self.running.saturating_add(self.lent.places);
        Some(self.rates.concurrency?.saturating_sub(taken))
    }

    fn lendable(&self) -> LeaseAllowance {
        let (requests, tokens) = self.buckets.lendable(&self.rates, self.lent.rated);
        let places = self.free_places().map(|left| {
            let is_far = left.saturating_mul(2) >= self.rates.concurrency.unwrap_or(0);
            let (single, all) = (
                left / PART_OF_LEFT.unsigned_abs(),
                left / ALL_PART_OF_LEFT.unsigned_abs(),
            );
            let part = single.min(all.saturating_sub(self.lent.places));
            if is_far { part } else { 0 }
        });
        LeaseAllowance {
            requests,
            tokens,
            places,
        }
    }

    fn is_near(&self) -> bool {
        let places = self.free_places().is_some_and(|left| left < self.lent.places);
        places || self.buckets.is_near(self.lent.rated)
    }
}

/// The change of a lease's part of one limit. In the default value, the lease has no part and wants none.
#[derive(Clone, Copy, Debug)]
struct LeasePartChange {
    after: u64,
    more: u64,
    back: u64,
    is_whole: bool,
}

impl Default for LeasePartChange {
    fn default() -> Self {
        Self {
            after: 0,
            more: 0,
            back: 0,
            is_whole: true,
        }
    }
}

/// Returns the change of a lease's part of a limit. The lease has `has` units of the limit and wants `wants` units. It can get at
/// most `part` units in addition. `None` if there is no limit.
fn part_change(has: u64, wants: u64, part: Option<u64>) -> Option<LeasePartChange> {
    let (back, missing) = (has.saturating_sub(wants), wants.saturating_sub(has));
    let more = missing.min(part?);
    let is_enough = more > 0 && more >= missing / PART_OF_WANTED.unsigned_abs();
    let more = if is_enough { more } else { 0 };
    Some(LeasePartChange {
        after: has.saturating_sub(back).saturating_add(more),
        more,
        back,
        is_whole: missing == 0 || is_enough,
    })
}

fn rate_use(requests: &LeasePartChange, tokens: &LeasePartChange, of: fn(&LeasePartChange) -> u64) -> RateUse {
    RateUse {
        requests: of(requests),
        tokens: of(tokens),
    }
}

fn check_concurrency(scope: LimitScope, limit: Option<u64>, running: u64, lent: LentRates) -> Result<(), Denial> {
    match limit {
        Some(limit) if running.saturating_add(lent.places) >= limit => Err(Denial::Concurrency {
            scope,
            limit,
            lent: lent.places > 0,
        }),
        _ => Ok(()),
    }
}
