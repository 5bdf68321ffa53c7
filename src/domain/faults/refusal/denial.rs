//! Converts the ledger's denials, and errors of keys, to refusals.

use super::{LimitRefusal, Refusal};
use crate::domain::{
    keys::key::KeyInvalid,
    ledger::{Denial, LimitScope, QuotaReset},
};

impl Refusal {
    /// Returns the refusal for a denial. `reset` is the period of the key's quota, and `now_unix` is in seconds since the Unix
    /// epoch.
    pub(crate) fn from_denial(denial: Denial, reset: QuotaReset, now_unix: i64) -> Self {
        Self::Limited(match denial {
            Denial::KeyRevoked => return Self::KeyRevoked,
            Denial::KeyExpired => return Self::KeyExpired,
            Denial::AccountUnknown => LimitRefusal::NoAccount,
            Denial::AccountSuspended => LimitRefusal::Suspended,
            Denial::BalanceExhausted => LimitRefusal::Balance,
            Denial::BalanceHeld => LimitRefusal::Held {
                scope: LimitScope::Account,
            },
            Denial::QuotaExhausted(standing) => LimitRefusal::Quota {
                standing,
                reset,
                resets_in: standing
                    .resets_at
                    .map(|at| u64::try_from(at.saturating_sub(now_unix)).unwrap_or(0).max(1)),
            },
            Denial::QuotaHeld(_) => LimitRefusal::Held { scope: LimitScope::Key },
            Denial::Concurrency { scope, limit, .. } => LimitRefusal::Concurrency { scope, limit },
            Denial::RateLimited {
                scope,
                counted,
                limit,
                retry_after_ms,
                ..
            } => {
                let seconds = retry_after_ms.div_ceil(1000).max(1);
                LimitRefusal::Rate {
                    scope,
                    counted,
                    limit,
                    retry_after_seconds: seconds,
                    retry_at: now_unix.saturating_add_unsigned(seconds),
                }
            }
        })
    }
}

impl From<KeyInvalid> for Refusal {
    fn from(denied: KeyInvalid) -> Self {
        match denied {
            KeyInvalid::Revoked => Self::KeyRevoked,
            KeyInvalid::Replaced => Self::KeyReplaced,
            KeyInvalid::Expired => Self::KeyExpired,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::{
        ledger::{QuotaUse, RateKind},
        money::NanoUsd,
    };

    #[test]
    fn each_denial_has_a_refusal_of_its_own() {
        let quota = QuotaUse {
            quota: NanoUsd::from_nanos(2),
            spent: NanoUsd::from_nanos(2),
            resets_at: Some(160),
        };
        let concurrency = |scope| Denial::Concurrency {
            scope,
            limit: 4,
            lent: false,
        };
        let rate = |counted| Denial::RateLimited {
            scope: LimitScope::Key,
            counted,
            limit: 9,
            retry_after_ms: 1_001,
            lent: true,
        };
        let limited_rate = |counted| LimitRefusal::Rate {
            scope: LimitScope::Key,
            counted,
            limit: 9,
            retry_after_seconds: 2,
            retry_at: 102,
        };
        for (denial, limit, reason) in [
            (Denial::AccountUnknown, LimitRefusal::NoAccount, "account_unknown"),
            (Denial::AccountSuspended, LimitRefusal::Suspended, "account_suspended"),
            (Denial::BalanceExhausted, LimitRefusal::Balance, "balance_exhausted"),
            (
                Denial::BalanceHeld,
                LimitRefusal::Held {
                    scope: LimitScope::Account,
                },
                "funds_held",
            ),
            (
                Denial::QuotaExhausted(quota),
                LimitRefusal::Quota {
                    standing: quota,
                    reset: QuotaReset::Daily,
                    resets_in: Some(60),
                },
                "quota_exhausted",
            ),
            (
                Denial::QuotaHeld(quota),
                LimitRefusal::Held { scope: LimitScope::Key },
                "funds_held",
            ),
            (
                concurrency(LimitScope::Account),
                LimitRefusal::Concurrency {
                    scope: LimitScope::Account,
                    limit: 4,
                },
                "concurrency_limited",
            ),
            (
                rate(RateKind::Requests),
                limited_rate(RateKind::Requests),
                "requests_limited",
            ),
            (rate(RateKind::Tokens), limited_rate(RateKind::Tokens), "tokens_limited"),
        ] {
            let refusal = Refusal::from_denial(denial, QuotaReset::Daily, 100);
            assert_eq!((refusal.reason(), refusal.status()), (reason, 429), "{denial:?}");
            assert_eq!(refusal, Refusal::Limited(limit));
        }
    }

    #[test]
    fn a_key_that_is_not_valid_is_refused_alike_by_its_record_and_by_the_ledger() {
        for (denial, denied, refusal) in [
            (Denial::KeyRevoked, KeyInvalid::Revoked, Refusal::KeyRevoked),
            (Denial::KeyExpired, KeyInvalid::Expired, Refusal::KeyExpired),
        ] {
            assert_eq!(Refusal::from_denial(denial, QuotaReset::None, 0), refusal);
            assert_eq!(Refusal::from(denied), refusal);
        }
        assert_eq!(Refusal::from(KeyInvalid::Replaced), Refusal::KeyReplaced);
    }
}
