//! Predicts the denial of a request before its body has been read, by what the store last reported and what this node has
//! admitted and refused since. Makes no call.

use crate::{
    domain::{
        keys::key::KeyRecord,
        ledger::{Denial, LimitScope, RateLimits},
        money::NanoUsd,
    },
    money::billing::last_seen::{GraceLimits, LastSeen, SeenKey, remaining},
};

/// The time for which the store's report of money left is trusted.
const VOUCHED_MS: i64 = 10_000;

/// No limits besides the balance and quota themselves.
const UNBOUNDED: GraceLimits = GraceLimits {
    key: NanoUsd::MAX,
    account: NanoUsd::MAX,
};

impl LastSeen {
    /// The rate or concurrency limit that any request of the key would exceed now, however small.
    pub(in crate::money::billing) fn predict_denial(&self, key: &KeyRecord, now_ms: i64) -> Option<Denial> {
        let rates = &key.terms.rates;
        let of_key = || {
            // Most keys have no limit of their own and need no lookup.
            if *rates == RateLimits::default() {
                return None;
            }
            let known = self.keys.get(&key.id)?;
            known.tally.predict_denial(LimitScope::Key, rates, now_ms)
        };
        let of_account = || {
            let account = self.accounts.get(&key.account)?;
            account
                .tally
                .predict_denial(LimitScope::Account, &account.rates, now_ms)
        };
        of_key().or_else(of_account)
    }

    /// Whether the store has reported within [`VOUCHED_MS`] that the account has money and the key some of its quota, and this
    /// node has not spent it since.
    pub(in crate::money::billing) fn has_recent_funds(&self, key: &KeyRecord, now_ms: i64) -> bool {
        let Some(account) = self.accounts.get(&key.account) else {
            return false;
        };
        let unseen = SeenKey::default();
        let known = self.keys.get(&key.id).unwrap_or(&unseen);
        let left = remaining(account, known, key, &UNBOUNDED, now_ms);
        (0..=VOUCHED_MS).contains(&now_ms.saturating_sub(account.tally.last_reply_ms))
            && left.is_some_and(|left| left > NanoUsd::ZERO)
    }

    /// Counts a refused request of the key: it takes as much of the key's rate on this node as a served one.
    pub(in crate::money::billing) fn count_refused(&mut self, key: &KeyRecord, now_ms: i64) {
        if key.terms.rates.rpm.is_none() {
            return;
        }
        if let Some(known) = self.key(&key.id, now_ms) {
            known.tally.count_refused(&key.terms.rates, now_ms);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        domain::ledger::{Grant, KeyTerms, ProviderState, QuotaReset, QuotaUse, RateKind, RateLimits},
        money::billing::tally::SettledCharge,
        store::ledger::contract::record,
    };

    const NOW: i64 = 1_000_000;

    fn grant(balance: i64) -> Grant {
        Grant {
            hold: NanoUsd::from_nanos(10),
            at_ms: 1,
            balance: NanoUsd::from_nanos(balance),
            low_balance: None,
            quota: None,
            provider_state: ProviderState::Own,
            account_rates: RateLimits::default(),
            watermark: 0,
        }
    }

    fn with_rates(rates: RateLimits) -> KeyRecord {
        let terms = KeyTerms {
            rates,
            ..KeyTerms::default()
        };
        KeyRecord { terms, ..record(1) }
    }

    fn rpm(limit: u64) -> KeyRecord {
        with_rates(RateLimits {
            rpm: Some(limit),
            ..RateLimits::default()
        })
    }

    #[test]
    fn a_refused_request_takes_as_much_of_the_rate_as_a_served_one() {
        let (mut seen, key) = (LastSeen::new_shard(1), rpm(3));
        seen.on_granted(&key, &grant(100), 0, NOW);
        assert_eq!(seen.predict_denial(&key, NOW), None);
        seen.count_refused(&key, NOW);
        assert_eq!(seen.predict_denial(&key, NOW), None);
        seen.count_refused(&key, NOW);
        let limited = |retry_after_ms| Denial::RateLimited {
            scope: LimitScope::Key,
            counted: RateKind::Requests,
            limit: 3,
            retry_after_ms,
            lent: false,
        };
        assert_eq!(seen.predict_denial(&key, NOW), Some(limited(20_000)));
        // What exceeds the rate takes nothing more: who waits as told is served.
        for _ in 0..10 {
            seen.count_refused(&key, NOW);
        }
        assert_eq!(seen.predict_denial(&key, NOW + 19_000), Some(limited(1_000)));
        assert_eq!(seen.predict_denial(&key, NOW + 20_000), None);
        assert_eq!(seen.predict_denial(&rpm(600), NOW + 100), None, "a raised rate holds");
    }

    #[test]
    fn a_key_without_a_rate_is_not_remembered_for_its_refusals() {
        let mut seen = LastSeen::new_shard(1);
        for _ in 0..1000 {
            seen.count_refused(&record(1), NOW);
        }
        assert_eq!((seen.keys.len(), seen.predict_denial(&record(1), NOW)), (0, None));
    }

    #[test]
    fn what_runs_here_fills_the_places_of_key_and_account() {
        let one = RateLimits {
            concurrency: Some(1),
            ..RateLimits::default()
        };
        let of = |scope| {
            Some(Denial::Concurrency {
                scope,
                limit: 1,
                lent: false,
            })
        };
        let (mut seen, key) = (LastSeen::new_shard(1), with_rates(one));
        let (seat, _) = seen.on_granted(&key, &grant(100), 0, NOW);
        assert_eq!(seen.predict_denial(&key, NOW), of(LimitScope::Key));
        let end = SettledCharge {
            step: None,
            cost: NanoUsd::ZERO,
            tokens_estimated: 0,
            tokens_used: 0,
        };
        seen.on_end(&key.account, &key.id, seat, &end);
        assert_eq!(seen.predict_denial(&key, NOW), None);
        let of_account = Grant {
            account_rates: one,
            ..grant(100)
        };
        seen.on_granted(&record(1), &of_account, 0, NOW);
        assert_eq!(seen.predict_denial(&record(1), NOW), of(LimitScope::Account));
    }

    #[test]
    fn a_limit_that_is_over_in_a_moment_is_left_to_the_store() {
        let (mut seen, key) = (LastSeen::new_shard(1), rpm(60));
        for _ in 0..60 {
            seen.on_granted(&key, &grant(100), 0, NOW);
        }
        assert!(seen.predict_denial(&key, NOW + 700).is_some());
        assert_eq!(
            seen.predict_denial(&key, NOW + 800),
            None,
            "the clocks may differ by so much"
        );
    }

    #[test]
    fn a_wait_for_tokens_says_nothing_of_a_smaller_request() {
        let key = with_rates(RateLimits {
            tpm: Some(100),
            ..RateLimits::default()
        });
        let denied = Denial::RateLimited {
            scope: LimitScope::Key,
            counted: RateKind::Tokens,
            limit: 100,
            retry_after_ms: 5_000,
            lent: false,
        };
        let mut seen = LastSeen::new_shard(1);
        seen.on_granted(&key, &grant(100), 50, NOW);
        seen.on_denied(&key, denied, NOW);
        assert_eq!(seen.predict_denial(&key, NOW), None);
    }

    #[test]
    fn money_is_vouched_for_as_long_as_the_store_has_said_so_a_moment_ago() {
        let (mut seen, key) = (LastSeen::new_shard(1), record(1));
        assert!(!seen.has_recent_funds(&key, NOW), "nothing is known");
        seen.on_granted(&key, &grant(100), 0, NOW);
        for (later, vouched) in [(0, true), (VOUCHED_MS, true), (VOUCHED_MS + 1, false), (-1, false)] {
            assert_eq!(seen.has_recent_funds(&key, NOW + later), vouched, "{later}");
        }
        seen.on_granted(&key, &grant(20), 0, NOW);
        assert!(!seen.has_recent_funds(&key, NOW), "two requests of 10 hold all of it");
        seen.on_account_denied(&key.account, NOW);
        assert!(!seen.has_recent_funds(&key, NOW));
    }

    #[test]
    fn a_quota_has_to_be_known_and_to_have_something_left() {
        let with = |quota| KeyRecord {
            terms: KeyTerms {
                quota: Some(NanoUsd::from_nanos(quota)),
                reset: QuotaReset::Daily,
                ..KeyTerms::default()
            },
            ..record(1)
        };
        let mut seen = LastSeen::new_shard(1);
        seen.on_granted(&record(2), &grant(1_000), 0, NOW);
        assert!(!seen.has_recent_funds(&with(100), NOW), "nothing is known of its quota");
        let quota = QuotaUse {
            quota: NanoUsd::from_nanos(100),
            spent: NanoUsd::from_nanos(50),
            resets_at: Some(i64::MAX),
        };
        let told = Grant {
            quota: Some(quota),
            ..grant(1_000)
        };
        seen.on_granted(&with(100), &told, 0, NOW);
        assert!(seen.has_recent_funds(&with(100), NOW));
        assert!(!seen.has_recent_funds(&with(60), NOW), "10 are held");
    }
}
