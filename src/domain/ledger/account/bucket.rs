//! Rate limits: one bucket each for the requests and the tokens of a key and of an account.
//!
//! A bucket is a level and the time it was true at. Its unit is 1/60000 of a request or a token, so that a limit of `n` per
//! minute fills up by `n` per millisecond. It holds `limit * 60000`, and starts full with the first request admitted under
//! the limit. Limits count as at most [`Rates::MAX`], so that every figure stays below 2^53.
//!
//! - The level at `now` is `level + limit * dt`, between `-capacity` and `capacity` of the limit as it is now, where `dt` is
//!   `now - at` between 0 and 120,000 ms (from the deepest level to full).
//! - A request takes 60000; its tokens take `min(tokens, limit) * 60000`. It passes if the level is at least that. If not,
//!   the same would pass in `ceil((cost - level) / limit)` ms. A limit of 0 lets nothing pass, and says 60,000 ms.
//! - A granted request writes all levels, with `at = max(at, now)`; where no limit is set it removes the bucket. A refused
//!   one writes nothing.
//! - A settlement takes `min(used, 3 * limit) - min(estimated, limit)` tokens more from a token bucket that is there and has
//!   a limit, between `-capacity` and `capacity`, at the time the level was true at. It does not make a bucket.
//! - What leases have and have not used is lent: it is taken from the bucket, and the bucket fills up to `capacity` less that,
//!   not below zero. So no more than `capacity` is ever there, in the bucket and in leases together.

use serde::{Deserialize, Serialize};

use crate::domain::{
    keys::terms::Rates,
    ledger::{
        admission::{Counted, Denial, Scope},
        lease::{ALL_PART_OF_LEFT, PART_OF_LEFT, Rated},
    },
};

const MINUTE_MS: i64 = 60_000;
const REFILL_MAX_MS: i64 = 2 * MINUTE_MS;

/// The two buckets of a key or an account.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Buckets {
    requests: Option<Bucket>,
    tokens: Option<Bucket>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Bucket {
    level: i64,
    at_ms: i64,
}

impl Buckets {
    /// The buckets after one request with its tokens, while so much is lent.
    ///
    /// # Errors
    /// [`Denial::RateLimited`]: one of them has not that much.
    pub(crate) fn take(
        &self,
        scope: Scope,
        rates: &Rates,
        tokens: u64,
        lent: Rated,
        now_ms: i64,
    ) -> Result<Self, Denial> {
        let take = |bucket: Option<Bucket>, limit: Option<u64>, amount: u64, counted: Counted, lent: u64| {
            let Some(limit) = limit else { return Ok(None) };
            let taken = Bucket::at(bucket, limit, lent, now_ms).take(limit, amount);
            taken.map(Some).map_err(|retry_after_ms| Denial::RateLimited {
                scope,
                counted,
                limit,
                retry_after_ms,
                lent: lent > 0,
            })
        };
        Ok(Self {
            requests: take(self.requests, rates.rpm, 1, Counted::Requests, lent.requests)?,
            tokens: take(self.tokens, rates.tpm, tokens, Counted::Tokens, lent.tokens)?,
        })
    }

    /// Corrects the tokens that were taken by what was used.
    pub(crate) fn correct(&mut self, rates: &Rates, estimated: u64, used: u64) {
        if let (Some(bucket), Some(limit)) = (&mut self.tokens, rates.tpm) {
            let most = limit.min(Rates::MAX);
            let more = units(used.min(3 * most)) - units(estimated.min(most));
            bucket.add(limit, -more);
        }
    }

    /// The buckets of these limits as they are at a moment, while so much is lent.
    pub(super) fn at(&self, rates: &Rates, lent: Rated, now_ms: i64) -> Self {
        let at = |bucket, limit: Option<u64>, lent| limit.map(|limit| Bucket::at(bucket, limit, lent, now_ms));
        Self {
            requests: at(self.requests, rates.rpm, lent.requests),
            tokens: at(self.tokens, rates.tpm, lent.tokens),
        }
    }

    /// How many requests and how many tokens more a lease may get, of buckets as they are now; `None` without a limit. Nothing,
    /// unless at least half of the limit is there.
    pub(super) fn lendable(&self, rates: &Rates, lent: Rated) -> (Option<u64>, Option<u64>) {
        let part = |bucket: Option<Bucket>, limit: Option<u64>, lent| Some(bucket?.lendable(limit?, lent));
        (
            part(self.requests, rates.rpm, lent.requests),
            part(self.tokens, rates.tpm, lent.tokens),
        )
    }

    /// Whether there is less of one, as they are now, than leases have of it.
    pub(super) fn are_near(&self, lent: Rated) -> bool {
        let is_near =
            |bucket: Option<Bucket>, lent: u64| lent > 0 && bucket.is_some_and(|bucket| bucket.level < units(lent));
        is_near(self.requests, lent.requests) || is_near(self.tokens, lent.tokens)
    }

    /// So much is lent, and so much comes back.
    pub(super) fn lend(&mut self, rates: &Rates, more: Rated, back: Rated) {
        let lend = |bucket: &mut Option<Bucket>, limit: Option<u64>, more, back| {
            if let (Some(bucket), Some(limit)) = (bucket, limit) {
                bucket.add(limit, units(back) - units(more));
            }
        };
        lend(&mut self.requests, rates.rpm, more.requests, back.requests);
        lend(&mut self.tokens, rates.tpm, more.tokens, back.tokens);
    }
}

impl Bucket {
    /// How it is at a moment, while so much is lent.
    fn at(bucket: Option<Self>, limit: u64, lent: u64, now_ms: i64) -> Self {
        let most = limit.min(Rates::MAX);
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

    /// It without that much, or in how many milliseconds it has that much.
    fn take(self, limit: u64, amount: u64) -> Result<Self, u64> {
        let most = limit.min(Rates::MAX);
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
        let capacity = units(limit.min(Rates::MAX));
        if self.level <= 0 || self.level.saturating_mul(2) < capacity {
            return 0;
        }
        let (single, all) = (self.level / PART_OF_LEFT, self.level / ALL_PART_OF_LEFT);
        let part = single.min(all.saturating_sub(units(lent))).max(0);
        part.unsigned_abs() / MINUTE_MS.unsigned_abs()
    }

    fn add(&mut self, limit: u64, more: i64) {
        let capacity = units(limit.min(Rates::MAX));
        self.level = self.level.saturating_add(more).clamp(-capacity, capacity);
    }
}

/// So many requests or tokens in the unit of a level. What is counted is bounded by [`Rates::MAX`].
fn units(amount: u64) -> i64 {
    i64::try_from(amount).unwrap_or(i64::MAX).saturating_mul(MINUTE_MS)
}
