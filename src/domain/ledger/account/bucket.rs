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

use serde::{Deserialize, Serialize};

use crate::domain::{
    keys::terms::Rates,
    ledger::admission::{Counted, Denied, Scope},
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
    /// The buckets after one request with its tokens.
    ///
    /// # Errors
    /// [`Denied::RateLimited`]: one of them has not that much.
    pub(crate) fn take(&self, scope: Scope, rates: &Rates, tokens: u64, now_ms: i64) -> Result<Self, Denied> {
        let take = |bucket: Option<Bucket>, limit: Option<u64>, amount: u64, counted: Counted| {
            let Some(limit) = limit else { return Ok(None) };
            let taken = Bucket::take(bucket, limit, amount, now_ms);
            taken.map(Some).map_err(|retry_after_ms| Denied::RateLimited {
                scope,
                counted,
                limit,
                retry_after_ms,
            })
        };
        Ok(Self {
            requests: take(self.requests, rates.rpm, 1, Counted::Requests)?,
            tokens: take(self.tokens, rates.tpm, tokens, Counted::Tokens)?,
        })
    }

    /// Corrects the tokens that were taken by what was used.
    pub(crate) fn correct(&mut self, rates: &Rates, estimated: u64, used: u64) {
        if let (Some(bucket), Some(limit)) = (&mut self.tokens, rates.tpm) {
            let most = limit.min(Rates::MAX);
            let more = units(used.min(3 * most)) - units(estimated.min(most));
            let capacity = units(most);
            bucket.level = (bucket.level - more).clamp(-capacity, capacity);
        }
    }
}

impl Bucket {
    /// The bucket without that much, or in how many milliseconds it has that much.
    fn take(bucket: Option<Self>, limit: u64, amount: u64, now_ms: i64) -> Result<Self, u64> {
        let most = limit.min(Rates::MAX);
        if most == 0 {
            return Err(MINUTE_MS.unsigned_abs());
        }
        let (per_ms, capacity) = (units(most) / MINUTE_MS, units(most));
        let full = Self {
            level: capacity,
            at_ms: now_ms,
        };
        let before = bucket.unwrap_or(full);
        let passed = now_ms.saturating_sub(before.at_ms).clamp(0, REFILL_MAX_MS);
        let level = (before.level + per_ms * passed).clamp(-capacity, capacity);
        let cost = units(amount.min(most));
        if level < cost {
            let missing = (cost - level).unsigned_abs();
            return Err(missing.div_ceil(most));
        }
        Ok(Self {
            level: level - cost,
            at_ms: before.at_ms.max(now_ms),
        })
    }
}

/// So many requests or tokens in the unit of a level. What is counted is bounded by [`Rates::MAX`].
fn units(amount: u64) -> i64 {
    i64::try_from(amount).unwrap_or(i64::MAX).saturating_mul(MINUTE_MS)
}
