//! What this node can tell of a request before its body has been read, by what the store last said and by what it has
//! admitted and refused itself since. It asks nobody.

use crate::{
    domain::{
        keys::key::KeyRecord,
        ledger::{Denial, Rates, Scope},
        money::NanoUsd,
    },
    money::billing::last_seen::{GraceLimits, Key, LastSeen, left},
};

/// How long the store's word that there is money left is good for.
const VOUCHED_MS: i64 = 10_000;

/// Nothing bounds it but the money itself.
const UNBOUNDED: GraceLimits = GraceLimits {
    key: NanoUsd::MAX,
    account: NanoUsd::MAX,
};

impl LastSeen {
    /// The rate or concurrency limit that any request of the key exceeds now, whatever is in it.
    pub(in crate::money::billing) fn foresees(&self, key: &KeyRecord, now_ms: i64) -> Option<Denial> {
        let rates = &key.terms.rates;
        let of_key = || {
            // Most keys have no limit of their own, and are not looked for.
            if *rates == Rates::default() {
                return None;
            }
            let known = self.keys.get(&key.id)?;
            known.tally.foresees(Scope::Key, rates, now_ms)
        };
        let of_account = || {
            let account = self.accounts.get(&key.account)?;
            account.tally.foresees(Scope::Account, &account.rates, now_ms)
        };
        of_key().or_else(of_account)
    }

    /// Whether the store has said a moment ago that the account has money and the key some of its quota, and this node
    /// has not spent it since.
    pub(in crate::money::billing) fn vouches_for(&self, key: &KeyRecord, now_ms: i64) -> bool {
        let Some(account) = self.accounts.get(&key.account) else {
            return false;
        };
        let unseen = Key::default();
        let known = self.keys.get(&key.id).unwrap_or(&unseen);
        let left = left(account, known, key, &UNBOUNDED, now_ms);
        (0..=VOUCHED_MS).contains(&now_ms.saturating_sub(account.tally.told_ms))
            && left.is_some_and(|left| left > NanoUsd::ZERO)
    }

    /// A request of the key was refused: it takes as much of the key's rate here as one that is served.
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
        domain::ledger::{Counted, Grant, KeyTerms, ProviderState, QuotaUse, Rates, Reset},
        money::billing::tally::Settled,
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
            account_rates: Rates::default(),
            watermark: 0,
        }
    }

    fn with_rates(rates: Rates) -> KeyRecord {
        let terms = KeyTerms {
            rates,
            ..KeyTerms::default()
        };
        KeyRecord { terms, ..record(1) }
    }

    fn rpm(limit: u64) -> KeyRecord {
        with_rates(Rates {
            rpm: Some(limit),
            ..Rates::default()
        })
    }

    #[test]
    fn a_refused_request_takes_as_much_of_the_rate_as_a_served_one() {
        let (mut seen, key) = (LastSeen::one_of(1), rpm(3));
        seen.granted(&key, &grant(100), 0, NOW);
        assert_eq!(seen.foresees(&key, NOW), None);
        seen.count_refused(&key, NOW);
        assert_eq!(seen.foresees(&key, NOW), None);
        seen.count_refused(&key, NOW);
        let limited = |retry_after_ms| Denial::RateLimited {
            scope: Scope::Key,
            counted: Counted::Requests,
            limit: 3,
            retry_after_ms,
            lent: false,
        };
        assert_eq!(seen.foresees(&key, NOW), Some(limited(20_000)));
        // What exceeds the rate takes nothing more: who waits as told is served.
        for _ in 0..10 {
            seen.count_refused(&key, NOW);
        }
        assert_eq!(seen.foresees(&key, NOW + 19_000), Some(limited(1_000)));
        assert_eq!(seen.foresees(&key, NOW + 20_000), None);
        assert_eq!(seen.foresees(&rpm(600), NOW + 100), None, "a raised rate holds");
    }

    #[test]
    fn a_key_without_a_rate_is_not_remembered_for_its_refusals() {
        let mut seen = LastSeen::one_of(1);
        for _ in 0..1000 {
            seen.count_refused(&record(1), NOW);
        }
        assert_eq!((seen.keys.len(), seen.foresees(&record(1), NOW)), (0, None));
    }

    #[test]
    fn what_runs_here_fills_the_places_of_key_and_account() {
        let one = Rates {
            concurrency: Some(1),
            ..Rates::default()
        };
        let of = |scope| {
            Some(Denial::Concurrency {
                scope,
                limit: 1,
                lent: false,
            })
        };
        let (mut seen, key) = (LastSeen::one_of(1), with_rates(one));
        let (seat, _) = seen.granted(&key, &grant(100), 0, NOW);
        assert_eq!(seen.foresees(&key, NOW), of(Scope::Key));
        let end = Settled {
            step: None,
            cost: NanoUsd::ZERO,
            tokens_estimated: 0,
            tokens_used: 0,
        };
        seen.ended(&key.account, &key.id, seat, &end);
        assert_eq!(seen.foresees(&key, NOW), None);
        let of_account = Grant {
            account_rates: one,
            ..grant(100)
        };
        seen.granted(&record(1), &of_account, 0, NOW);
        assert_eq!(seen.foresees(&record(1), NOW), of(Scope::Account));
    }

    #[test]
    fn a_limit_that_is_over_in_a_moment_is_left_to_the_store() {
        let (mut seen, key) = (LastSeen::one_of(1), rpm(60));
        for _ in 0..60 {
            seen.granted(&key, &grant(100), 0, NOW);
        }
        assert!(seen.foresees(&key, NOW + 700).is_some());
        assert_eq!(seen.foresees(&key, NOW + 800), None, "the clocks may differ by so much");
    }

    #[test]
    fn a_wait_for_tokens_says_nothing_of_a_smaller_request() {
        let key = with_rates(Rates {
            tpm: Some(100),
            ..Rates::default()
        });
        let denied = Denial::RateLimited {
            scope: Scope::Key,
            counted: Counted::Tokens,
            limit: 100,
            retry_after_ms: 5_000,
            lent: false,
        };
        let mut seen = LastSeen::one_of(1);
        seen.granted(&key, &grant(100), 50, NOW);
        seen.refused(&key, denied, NOW);
        assert_eq!(seen.foresees(&key, NOW), None);
    }

    #[test]
    fn money_is_vouched_for_as_long_as_the_store_has_said_so_a_moment_ago() {
        let (mut seen, key) = (LastSeen::one_of(1), record(1));
        assert!(!seen.vouches_for(&key, NOW), "nothing is known");
        seen.granted(&key, &grant(100), 0, NOW);
        for (later, vouched) in [(0, true), (VOUCHED_MS, true), (VOUCHED_MS + 1, false), (-1, false)] {
            assert_eq!(seen.vouches_for(&key, NOW + later), vouched, "{later}");
        }
        seen.granted(&key, &grant(20), 0, NOW);
        assert!(!seen.vouches_for(&key, NOW), "two requests of 10 hold all of it");
        seen.account_refused(&key.account, NOW);
        assert!(!seen.vouches_for(&key, NOW));
    }

    #[test]
    fn a_quota_has_to_be_known_and_to_have_something_left() {
        let with = |quota| KeyRecord {
            terms: KeyTerms {
                quota: Some(NanoUsd::from_nanos(quota)),
                reset: Reset::Daily,
                ..KeyTerms::default()
            },
            ..record(1)
        };
        let mut seen = LastSeen::one_of(1);
        seen.granted(&record(2), &grant(1_000), 0, NOW);
        assert!(!seen.vouches_for(&with(100), NOW), "nothing is known of its quota");
        let quota = QuotaUse {
            quota: NanoUsd::from_nanos(100),
            spent: NanoUsd::from_nanos(50),
            resets_at: Some(i64::MAX),
        };
        let told = Grant {
            quota: Some(quota),
            ..grant(1_000)
        };
        seen.granted(&with(100), &told, 0, NOW);
        assert!(seen.vouches_for(&with(100), NOW));
        assert!(!seen.vouches_for(&with(60), NOW), "10 are held");
    }
}
