//! Recent refusals. A key that was refused recently is refused before its body is read, if the store confirms that the
//! reason still holds. Other keys cost one look into a local table and no call.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::domain::{
    keys::key::KeyId,
    ledger::{Counted, Denial},
    quick_map::QuickMap,
};

/// How long a refusal is remembered at most.
const REMEMBERED: Duration = Duration::from_secs(60);
/// The most keys remembered. Further keys are refused after their body has been read, as on the first refusal.
const KEYS_MAX: usize = 10_000;

/// The last refusal of each key.
#[derive(Debug, Default)]
pub(crate) struct RecentRefusals {
    refusals: Mutex<QuickMap<KeyId, Remembered>>,
}

#[derive(Debug)]
struct Remembered {
    denied: Denial,
    at: Instant,
    until: Instant,
}

impl RecentRefusals {
    /// Remembers a refusal; `at` is when the store was asked. Only reasons that hold for every request of the key are
    /// remembered, and none that ends with a running request.
    pub(crate) fn remember(&self, key: &KeyId, denied: Denial, at: Instant) {
        let lasts = match denied {
            Denial::AccountUnknown
            | Denial::AccountSuspended
            | Denial::BalanceExhausted
            | Denial::QuotaExhausted(_) => REMEMBERED,
            Denial::RateLimited {
                counted: Counted::Requests,
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
        let mut refusals = self.refusals.lock();
        if refusals.len() >= KEYS_MAX && !refusals.contains_key(key) {
            refusals.retain(|_, one| one.until > at);
            if refusals.len() >= KEYS_MAX {
                return;
            }
        }
        let until = at + lasts;
        refusals.insert(key.clone(), Remembered { denied, at, until });
    }

    /// Why the key was refused, if that may still hold at `now`. A rate limit's wait is reduced by the time passed.
    pub(crate) fn recall(&self, key: &KeyId, now: Instant) -> Option<Denial> {
        let mut refusals = self.refusals.lock();
        let Remembered { denied, at, until } = refusals.get(key)?;
        if *until <= now {
            refusals.remove(key);
            return None;
        }
        let passed = u64::try_from(now.saturating_duration_since(*at).as_millis()).unwrap_or(u64::MAX);
        let mut denied = *denied;
        if let Denial::RateLimited { retry_after_ms, .. } = &mut denied {
            *retry_after_ms = retry_after_ms.saturating_sub(passed);
        }
        Some(denied)
    }

    /// Forgets a key's refusal, because it holds no longer.
    pub(crate) fn forget(&self, key: &KeyId) {
        self.refusals.lock().remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::ledger::Scope;

    fn key(number: usize) -> KeyId {
        KeyId::parse(&format!("key_{number:016}")).unwrap()
    }

    fn limited(counted: Counted, retry_after_ms: u64) -> Denial {
        Denial::RateLimited {
            scope: Scope::Key,
            counted,
            limit: 3,
            retry_after_ms,
            lent: false,
        }
    }

    #[test]
    fn a_refusal_is_remembered_for_a_minute_or_until_it_is_forgotten() {
        let (recent, now) = (RecentRefusals::default(), crate::edges::clock::instant());
        recent.remember(&key(1), Denial::BalanceExhausted, now);
        let last = now + REMEMBERED - Duration::from_millis(1);
        assert_eq!(recent.recall(&key(1), last), Some(Denial::BalanceExhausted));
        assert_eq!(recent.recall(&key(2), now), None);
        assert_eq!(recent.recall(&key(1), now + REMEMBERED), None);
        recent.remember(&key(1), Denial::AccountSuspended, now);
        recent.forget(&key(1));
        assert_eq!(recent.recall(&key(1), now), None);
    }

    #[test]
    fn a_wait_is_what_is_left_of_it() {
        let (recent, now) = (RecentRefusals::default(), crate::edges::clock::instant());
        recent.remember(&key(1), limited(Counted::Requests, 1500), now);
        let later = now + Duration::from_millis(600);
        assert_eq!(recent.recall(&key(1), later), Some(limited(Counted::Requests, 900)));
        assert_eq!(recent.recall(&key(1), now + Duration::from_millis(1500)), None);
    }

    #[test]
    fn what_depends_on_the_request_or_ends_with_another_is_not_remembered() {
        let (recent, now) = (RecentRefusals::default(), crate::edges::clock::instant());
        let concurrency = Denial::Concurrency {
            scope: Scope::Key,
            limit: 1,
            lent: false,
        };
        for denied in [limited(Counted::Tokens, 1500), concurrency, Denial::KeyRevoked] {
            recent.remember(&key(1), denied, now);
            assert_eq!(recent.recall(&key(1), now), None, "{denied:?}");
        }
    }

    #[test]
    fn the_table_is_bounded_and_makes_room_when_refusals_are_old() {
        let (recent, now) = (RecentRefusals::default(), crate::edges::clock::instant());
        for number in 0..=KEYS_MAX {
            recent.remember(&key(number), Denial::BalanceExhausted, now);
        }
        assert_eq!(recent.refusals.lock().len(), KEYS_MAX);
        assert_eq!(recent.recall(&key(KEYS_MAX), now), None);
        recent.remember(&key(KEYS_MAX), Denial::BalanceExhausted, now + REMEMBERED);
        assert!(recent.recall(&key(KEYS_MAX), now + REMEMBERED).is_some());
        assert_eq!(recent.refusals.lock().len(), 1);
    }
}
