//! Rate limits. A key and an account each have one bucket for requests and one for tokens.
//!
//! A bucket consists of a level and the time of that level. The unit of a level is 1/60000 of a request or a token, so that a
//! limit of `n` per minute refills by `n` per millisecond. The capacity of a bucket is `limit * 60000`, and it is full when the
//! first request is admitted under the limit. Limits are capped at [`RateLimits::MAX`], so that every number stays below 2^53.
//!
//! - The level at `now` is `level + limit * dt`, clamped to `-capacity` and `capacity` of the current limit. `dt` is `now - at`,
//!   clamped to 0 and 120,000 ms, which is the time from the lowest level to full.
//! - A request costs 60000, and its tokens cost `min(tokens, limit) * 60000`. A request passes if the level is at least the cost.
//!   If not, it would pass in `ceil((cost - level) / limit)` ms. A limit of 0 lets nothing pass, and reports 60,000 ms.
//! - A granted request writes all levels, with `at = max(at, now)`, and removes the bucket of a limit that is not set. A refused
//!   request writes nothing.
//! - A settlement takes `min(used, 3 * limit) - min(estimated, limit)` more tokens from a token bucket that exists and has a
//!   limit. The level is clamped to `-capacity` and `capacity`, and its time does not change. A settlement does not create a
//!   bucket.
//! - The unused part of leases is lent. It is taken from the bucket, and the bucket refills only up to `capacity` less the lent
//!   part, but not less than zero. So the bucket and the leases together never have more than `capacity`.

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
    /// Returns the buckets after one request with its tokens, while leases have `lent`.
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

    /// Corrects the tokens that were taken at admission to the tokens that were used.
    pub(crate) fn correct(&mut self, rates: &RateLimits, estimated: u64, used: u64) {
        if let (Some(bucket), Some(limit)) = (&mut self.tokens, rates.tpm) {
            let most = limit.min(RateLimits::MAX);
            let more = units(used.min(3 * most)) - units(estimated.min(most));
            bucket.add(limit, -more);
        }
    }

    /// Returns the buckets of these limits, refilled to `now_ms`, while leases have `lent`.
    pub(super) fn refilled_at(&self, rates: &RateLimits, lent: RateUse, now_ms: i64) -> Self {
        let at =
            |bucket, limit: Option<u64>, lent| limit.map(|limit| RateBucket::refilled_at(bucket, limit, lent, now_ms));
        Self {
            requests: at(self.requests, rates.rpm, lent.requests),
            tokens: at(self.tokens, rates.tpm, lent.tokens),
        }
    }

    /// Returns how many more requests and tokens one lease can get from refilled buckets; `None` if there is no limit. The number
    /// is zero unless at least half of the limit remains.
    pub(super) fn lendable(&self, rates: &RateLimits, lent: RateUse) -> (Option<u64>, Option<u64>) {
        let part = |bucket: Option<RateBucket>, limit: Option<u64>, lent| Some(bucket?.lendable(limit?, lent));
        (
            part(self.requests, rates.rpm, lent.requests),
            part(self.tokens, rates.tpm, lent.tokens),
        )
    }

    /// Whether one of the refilled buckets has less than leases have of it.
    pub(super) fn is_near(&self, lent: RateUse) -> bool {
        let is_near =
            |bucket: Option<RateBucket>, lent: u64| lent > 0 && bucket.is_some_and(|bucket| bucket.level < units(lent));
        is_near(self.requests, lent.requests) || is_near(self.tokens, lent.tokens)
    }

    /// Takes `more` out of the buckets for leases, and puts `back`, which leases return, into them.
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
    /// Returns the bucket refilled to `now_ms`, while leases have `lent` of it. If `bucket` is `None`, it is full.
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

    /// Returns the bucket after `amount` was taken out. If it has less, the error is the number of milliseconds until it has that
    /// much.
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

/// Converts requests or tokens to the unit of a level.
fn units(amount: u64) -> i64 {
    i64::try_from(amount).unwrap_or(i64::MAX).saturating_mul(MINUTE_MS)
}
