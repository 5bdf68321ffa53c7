//! The refusal that a client gets for a denial by the ledger, or for a key that is not valid.

use super::{Limit, Refusal};
use crate::domain::{
    keys::key::KeyDenied,
    ledger::{Denial, Reset, Scope},
};

impl Refusal {
    /// The refusal for a denial. `reset` is that of the key's quota; `now_unix` is in seconds since the Unix epoch.
    pub(crate) fn of(denial: Denial, reset: Reset, now_unix: i64) -> Self {
        Self::Limited(match denial {
            Denial::KeyRevoked => return Self::KeyRevoked,
            Denial::KeyExpired => return Self::KeyExpired,
            Denial::AccountUnknown => Limit::NoAccount,
            Denial::AccountSuspended => Limit::Suspended,
            Denial::BalanceExhausted => Limit::Balance,
            Denial::BalanceHeld => Limit::Held { scope: Scope::Account },
            Denial::QuotaExhausted(standing) => Limit::Quota {
                standing,
                reset,
                resets_in: standing
                    .resets_at
                    .map(|at| u64::try_from(at.saturating_sub(now_unix)).unwrap_or(0).max(1)),
            },
            Denial::QuotaHeld(_) => Limit::Held { scope: Scope::Key },
            Denial::Concurrency { scope, limit, .. } => Limit::Concurrency { scope, limit },
            Denial::RateLimited {
                scope,
                counted,
                limit,
                retry_after_ms,
                ..
            } => {
                let seconds = retry_after_ms.div_ceil(1000).max(1);
                Limit::Rate {
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

impl From<KeyDenied> for Refusal {
    fn from(denied: KeyDenied) -> Self {
        match denied {
            KeyDenied::Revoked => Self::KeyRevoked,
            KeyDenied::Replaced => Self::KeyReplaced,
            KeyDenied::Expired => Self::KeyExpired,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::{
        ledger::{Counted, QuotaUse},
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
            scope: Scope::Key,
            counted,
            limit: 9,
            retry_after_ms: 1_001,
            lent: true,
        };
        let limited_rate = |counted| Limit::Rate {
            scope: Scope::Key,
            counted,
            limit: 9,
            retry_after_seconds: 2,
            retry_at: 102,
        };
        for (denial, limit, reason) in [
            (Denial::AccountUnknown, Limit::NoAccount, "account_unknown"),
            (Denial::AccountSuspended, Limit::Suspended, "account_suspended"),
            (Denial::BalanceExhausted, Limit::Balance, "balance_exhausted"),
            (Denial::BalanceHeld, Limit::Held { scope: Scope::Account }, "funds_held"),
            (
                Denial::QuotaExhausted(quota),
                Limit::Quota {
                    standing: quota,
                    reset: Reset::Daily,
                    resets_in: Some(60),
                },
                "quota_exhausted",
            ),
            (
                Denial::QuotaHeld(quota),
                Limit::Held { scope: Scope::Key },
                "funds_held",
            ),
            (
                concurrency(Scope::Account),
                Limit::Concurrency {
                    scope: Scope::Account,
                    limit: 4,
                },
                "concurrency_limited",
            ),
            (
                rate(Counted::Requests),
                limited_rate(Counted::Requests),
                "requests_limited",
            ),
            (rate(Counted::Tokens), limited_rate(Counted::Tokens), "tokens_limited"),
        ] {
            let refusal = Refusal::of(denial, Reset::Daily, 100);
            assert_eq!((refusal.reason(), refusal.status()), (reason, 429), "{denial:?}");
            assert_eq!(refusal, Refusal::Limited(limit));
        }
    }

    #[test]
    fn a_key_that_is_not_valid_is_refused_alike_by_its_record_and_by_the_ledger() {
        for (denial, denied, refusal) in [
            (Denial::KeyRevoked, KeyDenied::Revoked, Refusal::KeyRevoked),
            (Denial::KeyExpired, KeyDenied::Expired, Refusal::KeyExpired),
        ] {
            assert_eq!(Refusal::of(denial, Reset::None, 0), refusal);
            assert_eq!(Refusal::from(denied), refusal);
        }
        assert_eq!(Refusal::from(KeyDenied::Replaced), Refusal::KeyReplaced);
    }
}
