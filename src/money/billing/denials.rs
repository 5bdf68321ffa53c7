//! The last denial of each key on this node. Because of it, the key's next request can be refused before its body is read. The
//! store confirms a denial without placing a hold or recording a request.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::Mutex;

use crate::{
    domain::{
        QuickMap,
        keys::{KeyId, KeyRecord},
        ledger::{Denial, LimitScope, QuotaReset, QuotaUse, RateKind, RateLimits, period},
        money::NanoUsd,
    },
    edges::clock,
    store::{ledger::LedgerStore, time::StoreTime},
};

/// The maximum time for which a denial is remembered.
const REMEMBERED: Duration = Duration::from_secs(60);
/// Maximum number of keys whose denial is remembered. Requests of further keys are refused only after their body has been read.
const KEYS_MAX: usize = 10_000;

/// The last denial of each key, and the ledger that can confirm it.
pub(super) struct Denials {
    ledger: Arc<dyn LedgerStore>,
    time: Arc<StoreTime>,
    remembered: Mutex<QuickMap<KeyId, LastDenial>>,
}

#[derive(Debug)]
struct LastDenial {
    denial: Denial,
    at: Instant,
    until: Instant,
}

impl Denials {
    pub(super) fn new(ledger: Arc<dyn LedgerStore>, time: Arc<StoreTime>) -> Self {
        Self {
            ledger,
            time,
            remembered: Mutex::default(),
        }
    }

    /// Remembers a denial. `at` is the time of the call to the store. A denial is remembered only if it applies to every request
    /// of the key, and if the end of a running request cannot lift it.
    pub(super) fn remember(&self, key: &KeyId, denial: Denial, at: Instant) {
        let lasts = match denial {
            Denial::AccountUnknown
            | Denial::AccountSuspended
            | Denial::BalanceExhausted
            | Denial::QuotaExhausted(_) => REMEMBERED,
            Denial::RateLimited {
                counted: RateKind::Requests,
                retry_after_ms,
                lent: false,
                ..
            } => Duration::from_millis(retry_after_ms).min(REMEMBERED),
            Denial::BalanceHeld
            | Denial::QuotaHeld(_)
            | Denial::RateLimited { .. }
            | Denial::Concurrency { .. }
            | Denial::KeyRevoked
            | Denial::KeyExpired => return,
        };
        let mut remembered = self.remembered.lock();
        if remembered.len() >= KEYS_MAX && !remembered.contains_key(key) {
            remembered.retain(|_, one| one.until > at);
            if remembered.len() >= KEYS_MAX {
                return;
            }
        }
        let until = at + lasts;
        remembered.insert(key.clone(), LastDenial { denial, at, until });
    }

    /// Returns the key's last denial if it may still be valid at `now`. The remaining wait of a rate limit is reduced by the
    /// elapsed time.
    pub(super) fn recall(&self, key: &KeyId, now: Instant) -> Option<Denial> {
        let mut remembered = self.remembered.lock();
        let LastDenial { denial, at, until } = remembered.get(key)?;
        if *until <= now {
            remembered.remove(key);
            return None;
        }
        let passed = u64::try_from(now.saturating_duration_since(*at).as_millis()).unwrap_or(u64::MAX);
        let mut denial = *denial;
        if let Denial::RateLimited { retry_after_ms, .. } = &mut denial {
            *retry_after_ms = retry_after_ms.saturating_sub(passed);
        }
        Some(denial)
    }

    /// Removes a key's denial, because it is no longer valid.
    pub(super) fn forget(&self, key: &KeyId) {
        self.remembered.lock().remove(key);
    }

    /// Reads the account's balance and the key's spending from the store. Returns the denial if every request of this key would
    /// be denied because of the account or the quota. Otherwise, or if the store does not answer, returns `None`.
    pub(super) async fn check_funds(&self, key: &KeyRecord) -> Option<Denial> {
        let (account, quota) = tokio::join!(self.check_account(key), self.check_quota(key));
        account.or(quota)
    }

    /// Returns the denial that any request of this key would get from the store now, if that denial is of the same kind as
    /// `denial`. Returns `None` if a request may be admitted, or if that is unknown because the store is unreachable. Holds of
    /// running requests are treated as free, because they can end at any moment. `key` must be the store's current record if
    /// `denial` depends on the key.
    pub(super) async fn confirm(&self, key: &KeyRecord, denial: Denial) -> Option<Denial> {
        match denial {
            Denial::AccountUnknown | Denial::AccountSuspended | Denial::BalanceExhausted => {
                self.check_account(key).await
            }
            Denial::QuotaExhausted(_) => self.check_quota(key).await,
            Denial::RateLimited {
                scope, counted, limit, ..
            } => {
                let rates = self.rates(key, scope).await?;
                let now = match counted {
                    RateKind::Requests => rates.rpm,
                    RateKind::Tokens => rates.tpm,
                };
                (now == Some(limit)).then_some(denial)
            }
            Denial::Concurrency { scope, limit, .. } => {
                (self.rates(key, scope).await?.concurrency == Some(limit)).then_some(denial)
            }
            Denial::BalanceHeld | Denial::QuotaHeld(_) | Denial::KeyRevoked | Denial::KeyExpired => None,
        }
    }

    /// Reads from the store whether the key has spent its quota. Returns `None` if it has not, if it has no quota, or if the
    /// store does not answer.
    pub(super) async fn check_quota(&self, key: &KeyRecord) -> Option<Denial> {
        let quota = key.terms.quota?;
        let spent = self.ledger.key_spend(&key.account, &key.id).await.ok()?;
        let reset = key.terms.reset;
        let spent = match reset {
            QuotaReset::None => spent.all,
            QuotaReset::Daily => spent.day,
            QuotaReset::Weekly => spent.week,
            QuotaReset::Monthly => spent.month,
        };
        (spent >= quota).then(|| {
            Denial::QuotaExhausted(QuotaUse {
                quota,
                spent,
                resets_at: period::resets_at(reset, self.time.now_ms(clock::instant())),
            })
        })
    }

    async fn check_account(&self, key: &KeyRecord) -> Option<Denial> {
        let Some(account) = self.ledger.account(&key.account).await.ok()? else {
            return Some(Denial::AccountUnknown);
        };
        if account.record.suspended {
            return Some(Denial::AccountSuspended);
        }
        (account.balance <= NanoUsd::ZERO).then_some(Denial::BalanceExhausted)
    }

    async fn rates(&self, key: &KeyRecord, scope: LimitScope) -> Option<RateLimits> {
        match scope {
            LimitScope::Key => Some(key.terms.rates),
            LimitScope::Account => {
                let account = self.ledger.account(&key.account).await.ok()??;
                Some(account.record.terms.rates)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::ledger::contract::memory;

    fn remembered() -> Denials {
        Denials::new(memory::ledger(), Arc::new(StoreTime::new(clock::instant())))
    }

    fn key(number: usize) -> KeyId {
        KeyId::parse(&format!("key_{number:016}")).unwrap()
    }

    fn limited(counted: RateKind, retry_after_ms: u64) -> Denial {
        Denial::RateLimited {
            scope: LimitScope::Key,
            counted,
            limit: 3,
            retry_after_ms,
            lent: false,
        }
    }

    #[test]
    fn a_denial_is_remembered_for_a_minute_or_until_it_is_forgotten() {
        let (denials, now) = (remembered(), clock::instant());
        denials.remember(&key(1), Denial::BalanceExhausted, now);
        let last = now + REMEMBERED - Duration::from_millis(1);
        assert_eq!(denials.recall(&key(1), last), Some(Denial::BalanceExhausted));
        assert_eq!(denials.recall(&key(2), now), None);
        assert_eq!(denials.recall(&key(1), now + REMEMBERED), None);
        denials.remember(&key(1), Denial::AccountSuspended, now);
        denials.forget(&key(1));
        assert_eq!(denials.recall(&key(1), now), None);
    }

    #[test]
    fn a_wait_is_what_is_left_of_it() {
        let (denials, now) = (remembered(), clock::instant());
        denials.remember(&key(1), limited(RateKind::Requests, 1500), now);
        let later = now + Duration::from_millis(600);
        assert_eq!(denials.recall(&key(1), later), Some(limited(RateKind::Requests, 900)));
        assert_eq!(denials.recall(&key(1), now + Duration::from_millis(1500)), None);
    }

    #[test]
    fn what_depends_on_the_request_or_ends_with_another_is_not_remembered() {
        let (denials, now) = (remembered(), clock::instant());
        let concurrency = Denial::Concurrency {
            scope: LimitScope::Key,
            limit: 1,
            lent: false,
        };
        for denial in [limited(RateKind::Tokens, 1500), concurrency, Denial::KeyRevoked] {
            denials.remember(&key(1), denial, now);
            assert_eq!(denials.recall(&key(1), now), None, "{denial:?}");
        }
    }

    #[test]
    fn the_table_is_bounded_and_makes_room_when_denials_are_old() {
        let (denials, now) = (remembered(), clock::instant());
        for number in 0..=KEYS_MAX {
            denials.remember(&key(number), Denial::BalanceExhausted, now);
        }
        assert_eq!(denials.remembered.lock().len(), KEYS_MAX);
        assert_eq!(denials.recall(&key(KEYS_MAX), now), None);
        denials.remember(&key(KEYS_MAX), Denial::BalanceExhausted, now + REMEMBERED);
        assert!(denials.recall(&key(KEYS_MAX), now + REMEMBERED).is_some());
        assert_eq!(denials.remembered.lock().len(), 1);
    }
}
