//! Rate limits. Each key and each account has one bucket for requests and one for tokens.
//!
//! A bucket consists of a level and a time at which it had this level. The unit of a level is 1/60000 of a request or of a token,
//! so a limit of `n` per minute refills the bucket by `n` units per millisecond. The capacity of a bucket is `limit * 60000`. A
//! bucket is full until the first request to which its limit applies is admitted. Limits are capped at [`RateLimits::MAX`], so
//! that every number is below 2^53.
//!
//! - At the time `now`, the level is `level + limit * dt`, clamped to the range from `-capacity` to `capacity` of the current
//!   limit. `dt` is `now - at`, clamped to the range from 0 to 120,000 ms. In 120,000 ms, a bucket refills from the lowest level
//!   to the highest.
//! - A request costs 60000, and its tokens cost `min(tokens, limit) * 60000`. A request passes if the level is at least the cost.
//!   Otherwise, it would pass after `ceil((cost - level) / limit)` ms. With a limit of 0, no request passes, and the reported
//!   time is 60,000 ms.
//! - Granting a request writes all levels, with `at = max(at, now)`, and removes the bucket of a limit that is not set. Refusing
//!   a request writes nothing.
//! - If a token bucket exists and has a limit, a settlement deducts `min(used, 3 * limit) - min(estimated, limit)` tokens from
//!   it. This number may be negative. The level is clamped to the range from `-capacity` to `capacity`, and its time does not change. A
//!   settlement does not create a bucket.
//! - The unused part of leases is lent: it is deducted from the bucket. The bucket refills only up to `capacity` minus the lent
//!   part, or up to zero if this difference is negative. So the bucket and the leases together never exceed `capacity`.

use serde::{Deserialize, Serialize};

use crate::domain::{
    keys::terms::RateLimits,
    ledger::{
        Denial, LimitScope, RateKind,
        lease::{ALL_PART_OF_LEFT, PART_OF_LEFT, RateUse},
    },
};

const MINUTE_MS: i64 = 60_000;
const REFILL_MAX_MS: i64 = 2 * MINUTE_MS;

/// The two buckets of a key or an account.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RateBuckets {
    requests: Option<RateBucket>,
    tokens: Option<RateBucket>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct RateBucket {
    level: i64,
    at_ms: i64,
}

impl RateBuckets {
    /// Returns the buckets after one request and its tokens are deducted. `lent` is the unused part of leases.
    ///
    /// # Errors
    /// [`Denial::RateLimited`]: the level of a bucket is too low.
    pub(crate) fn reserve(
        &self,
        scope: LimitScope,
        rates: &RateLimits,
        tokens: u64,
        lent: RateUse,
        now_ms: i64,
    ) -> Result<Self, Denial> {
        let take = |bucket: Option<RateBucket>, limit: Option<u64>, amount: u64, counted: RateKind, lent: u64| {
            let Some(limit) = limit else { return Ok(None) };
            let taken = RateBucket::refilled_at(bucket, limit, lent, now_ms).reserve(limit, amount);
            taken.map(Some).map_err(|retry_after_ms| Denial::RateLimited {
                scope,
                counted,
                limit,
                retry_after_ms,
                lent: lent > 0,
            })
        };
        Ok(Self {
            requests: take(self.requests, rates.rpm, 1, RateKind::Requests, lent.requests)?,
            tokens: take(self.tokens, rates.tpm, tokens, RateKind::Tokens, lent.tokens)?,
        })
    }

    /// Corrects the token bucket by the difference between the estimated and the used tokens.
    pub(crate) fn correct(&mut self, rates: &RateLimits, estimated: u64, used: u64) {
        if let (Some(bucket), Some(limit)) = (&mut self.tokens, rates.tpm) {
            let most = limit.min(RateLimits::MAX);
            let more = units(used.min(3 * most)) - units(estimated.min(most));
            bucket.add(limit, -more);
        }
    }

    /// Returns the buckets for these limits, refilled until `now_ms`. `lent` is the unused part of leases.
    pub(super) fn refilled_at(&self, rates: &RateLimits, lent: RateUse, now_ms: i64) -> Self {
        let at =
            |bucket, limit: Option<u64>, lent| limit.map(|limit| RateBucket::refilled_at(bucket, limit, lent, now_ms));
        Self {
            requests: at(self.requests, rates.rpm, lent.requests),
            tokens: at(self.tokens, rates.tpm, lent.tokens),
        }
    }

    /// Returns the numbers of further requests and tokens that one lease can get from these refilled buckets; `None` if there is
    /// no limit. A number is zero if less than half of the limit remains.
    pub(super) fn lendable(&self, rates: &RateLimits, lent: RateUse) -> (Option<u64>, Option<u64>) {
        let part = |bucket: Option<RateBucket>, limit: Option<u64>, lent| Some(bucket?.lendable(limit?, lent));
        (
            part(self.requests, rates.rpm, lent.requests),
            part(self.tokens, rates.tpm, lent.tokens),
        )
    }

    /// Whether the level of one of the refilled buckets is below the unused part of leases.
    pub(super) fn is_near(&self, lent: RateUse) -> bool {
        let is_near =
            |bucket: Option<RateBucket>, lent: u64| lent > 0 && bucket.is_some_and(|bucket| bucket.level < units(lent));
        is_near(self.requests, lent.requests) || is_near(self.tokens, lent.tokens)
    }

    /// Deducts `more`, which leases get, from the buckets. Adds `back`, which leases return, to the buckets.
    pub(super) fn lend(&mut self, rates: &RateLimits, more: RateUse, back: RateUse) {
        let lend = |bucket: &mut Option<RateBucket>, limit: Option<u64>, more, back| {
            if let (Some(bucket), Some(limit)) = (bucket, limit) {
                bucket.add(limit, units(back) - units(more));
            }
        };
        lend(&mut self.requests, rates.rpm, more.requests, back.requests);
        lend(&mut self.tokens, rates.tpm, more.tokens, back.tokens);
    }
}

impl RateBucket {
    /// Returns the bucket, refilled until `now_ms`. `lent` is the unused part of leases. A bucket that does not exist yet is
    /// full.
    fn refilled_at(bucket: Option<Self>, limit: u64, lent: u64, now_ms: i64) -> Self {
        let most = limit.min(RateLimits::MAX);
        let (per_ms, capacity) = (units(most) / MINUTE_MS, units(most));
        let full = Self {
            level: capacity,
            at_ms: now_ms,
        };
        let before = bucket.unwrap_or(full);
        let passed = now_ms.saturating_sub(before.at_ms).clamp(0, REFILL_MAX_MS);
        let fills_to = capacity.saturating_sub(units(lent)).max(0);
        Self {
            level: (before.level + per_ms * passed).clamp(-capacity, fills_to),
            at_ms: before.at_ms.max(now_ms),
        }
    }

    /// Returns the bucket after `amount` is deducted. If its level is too low, the error is the number of milliseconds until the
    /// level suffices.
    fn reserve(self, limit: u64, amount: u64) -> Result<Self, u64> {
        let most = limit.min(RateLimits::MAX);
        if most == 0 {
            return Err(MINUTE_MS.unsigned_abs());
        }
        let cost = units(amount.min(most));
        if self.level < cost {
            let missing = (cost - self.level).unsigned_abs();
            return Err(missing.div_ceil(most));
        }
        Ok(Self {
            level: self.level - cost,
            ..self
        })
    }

    fn lendable(self, limit: u64, lent: u64) -> u64 {
        let capacity = units(limit.min(RateLimits::MAX));
        if self.level <= 0 || self.level.saturating_mul(2) < capacity {
            return 0;
        }
        let (single, all) = (self.level / PART_OF_LEFT, self.level / ALL_PART_OF_LEFT);
        let part = single.min(all.saturating_sub(units(lent))).max(0);
        part.unsigned_abs() / MINUTE_MS.unsigned_abs()
    }

    fn add(&mut self, limit: u64, more: i64) {
        let capacity = units(limit.min(RateLimits::MAX));
        self.level = self.level.saturating_add(more).clamp(-capacity, capacity);
    }
}

/// Converts a number of requests or tokens to the unit of a level.
fn units(amount: u64) -> i64 {
    i64::try_from(amount).unwrap_or(i64::MAX).saturating_mul(MINUTE_MS)
}
