//! What this node last learnt of accounts and keys from the store, and what it has admitted since: a bounded table,
//! updated by grants and refusals.

mod foreseen;
mod granted;

use std::hash::Hash;

use smol_str::SmolStr;

use crate::{
    domain::{
        keys::key::{KeyId, KeyRecord},
        ledger::{Denial, QuotaUse, Rates, Reset, Scope},
        money::NanoUsd,
        quick_map::QuickMap,
    },
    money::billing::tally::{Seat, Settled, Tally},
};

/// The most accounts remembered. The ones updated longest ago make room.
const ACCOUNTS_MAX: usize = 100_000;
/// The most keys remembered, by the same rule.
const KEYS_MAX: usize = 100_000;

/// What this node may commit until the store answers again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GraceLimits {
    /// For each key.
    pub key: NanoUsd,
    /// For all keys of one account together.
    pub account: NanoUsd,
}

/// The table of accounts and keys.
#[derive(Debug)]
pub(super) struct LastSeen {
    accounts: QuickMap<SmolStr, Account>,
    keys: QuickMap<KeyId, Key>,
    accounts_max: usize,
    keys_max: usize,
}

#[derive(Debug, Default)]
struct Account {
    tally: Tally,
    /// The last known balance; `None` if the account was refused as unknown, suspended or without money.
    balance: Option<NanoUsd>,
    /// The balance was low when the store last told of it.
    is_low: bool,
    rates: Rates,
}

#[derive(Debug, Default)]
struct Key {
    tally: Tally,
    /// What was spent of the quota, the kind of period it counts for, and the period's end in Unix seconds.
    spent: Option<(NanoUsd, Reset, Option<i64>)>,
    /// The key's revision at which the store said that it was revoked or expired.
    denied: Option<u64>,
    rates: Rates,
}

impl LastSeen {
    /// One of so many tables that together remember as much as one.
    pub(super) fn one_of(tables: usize) -> Self {
        Self::bounded(ACCOUNTS_MAX / tables, KEYS_MAX / tables)
    }

    fn bounded(accounts_max: usize, keys_max: usize) -> Self {
        Self {
            accounts: QuickMap::default(),
            keys: QuickMap::default(),
            accounts_max,
            keys_max,
        }
    }

    /// The store has refused a request.
    pub(super) fn refused(&mut self, key: &KeyRecord, denial: Denial, now_ms: i64) {
        match denial {
            Denial::AccountUnknown | Denial::AccountSuspended | Denial::BalanceExhausted => {
                self.account_refused(&key.account, now_ms);
            }
            Denial::KeyRevoked | Denial::KeyExpired => {
                if let Some(known) = self.key(&key.id, now_ms) {
                    known.denied = Some(key.revision);
                }
            }
            Denial::QuotaExhausted(quota_use) | Denial::QuotaHeld(quota_use) => {
                if let Some(known) = self.key(&key.id, now_ms) {
                    known.note_quota(key, Some(&quota_use));
                }
            }
            Denial::RateLimited {
                scope,
                retry_after_ms,
                lent: false,
                ..
            } => {
                let tally = match scope {
                    Scope::Key => self.key(&key.id, now_ms).map(|known| &mut known.tally),
                    Scope::Account => self.account(&key.account, now_ms).map(|account| &mut account.tally),
                };
                if let Some(tally) = tally {
                    tally.too_fast(denial, retry_after_ms, now_ms);
                }
            }
            // Other requests may end and leases come back at any moment, so these refusals are not remembered.
            Denial::BalanceHeld | Denial::Concurrency { .. } | Denial::RateLimited { .. } => {}
        }
    }

    /// Admits nothing for an account until the store does so again.
    pub(super) fn account_refused(&mut self, account: &SmolStr, now_ms: i64) {
        if let Some(account) = self.account(account, now_ms) {
            account.balance = None;
        }
    }

    /// Admits a request by what this node knows, and commits its estimate or what is left. The error is the rate or
    /// concurrency limit that this exceeds; `None` if the account or key is unknown here or was refused, or its grace is used
    /// up.
    pub(super) fn admit_alone(
        &mut self,
        key: &KeyRecord,
        estimate: NanoUsd,
        tokens: u64,
        limits: &GraceLimits,
        now_ms: i64,
    ) -> Result<Seat, Option<Denial>> {
        let account = self.accounts.get(&key.account).ok_or(None)?;
        let unseen = Key::default();
        let known = self.keys.get(&key.id).unwrap_or(&unseen);
        let left = left(account, known, key, limits, now_ms).filter(|left| *left > NanoUsd::ZERO);
        let left = left.ok_or(None)?;
        let (of_key, of_account) = (key.terms.rates, account.rates);
        let check = || {
            known.tally.check_running(Scope::Key, &of_key)?;
            account.tally.check_running(Scope::Account, &of_account)?;
            let taken = known.tally.take(Scope::Key, &of_key, tokens, now_ms)?;
            Ok((taken, account.tally.take(Scope::Account, &of_account, tokens, now_ms)?))
        };
        let (key_buckets, account_buckets) = check().map_err(Some)?;
        let seat = Seat {
            hold: estimate.max(NanoUsd::ZERO).min(left),
            on_grace: true,
        };
        // Without room in the table the request could not be counted.
        let known = self.key(&key.id, now_ms).ok_or(None)?;
        known.rates = of_key;
        known.tally.begin(seat, Some(key_buckets));
        if let Some(account) = self.accounts.get_mut(&key.account) {
            account.tally.begin(seat, Some(account_buckets));
        }
        Ok(seat)
    }

    /// A request has ended, whoever admitted it.
    pub(super) fn ended(&mut self, account: &str, key: &KeyId, seat: Seat, end: &Settled) {
        if let Some(account) = self.accounts.get_mut(account) {
            account.tally.end(seat, end, &account.rates);
        }
        if let Some(known) = self.keys.get_mut(key) {
            known.tally.end(seat, end, &known.rates);
        }
    }

    /// Whether this node alone could admit a request of any account.
    pub(super) fn may_give(&self, limits: &GraceLimits) -> bool {
        let some = |account: &Account| {
            let balance = account.balance.unwrap_or(NanoUsd::ZERO);
            balance > account.tally.owed() && limits.account > account.tally.on_grace()
        };
        limits.key > NanoUsd::ZERO && self.accounts.values().any(some)
    }

    /// What all accounts have committed without the store.
    pub(super) fn on_grace(&self) -> NanoUsd {
        let all = self.accounts.values().map(|account| account.tally.on_grace());
        all.fold(NanoUsd::ZERO, NanoUsd::saturating_add)
    }

    fn account(&mut self, name: &SmolStr, now_ms: i64) -> Option<&mut Account> {
        let new = || Account {
            tally: Tally::new(now_ms),
            ..Account::default()
        };
        entry(
            &mut self.accounts,
            self.accounts_max,
            name,
            |account| &account.tally,
            new,
        )
    }

    fn key(&mut self, id: &KeyId, now_ms: i64) -> Option<&mut Key> {
        let new = || Key {
            tally: Tally::new(now_ms),
            ..Key::default()
        };
        entry(&mut self.keys, self.keys_max, id, |key| &key.tally, new)
    }
}

impl Key {
    fn note_quota(&mut self, key: &KeyRecord, quota_use: Option<&QuotaUse>) {
        self.spent = quota_use.map(|quota_use| (quota_use.spent, key.terms.reset, quota_use.resets_at));
    }

    /// What was spent of the quota; `None` if unknown.
    fn spent(&self, reset: Reset, now_ms: i64) -> Option<NanoUsd> {
        let (spent, of, resets_at) = self.spent.filter(|(_, of, _)| *of == reset)?;
        let is_over = of != Reset::None && resets_at.is_some_and(|end| end <= now_ms.div_euclid(1000));
        Some(if is_over { NanoUsd::ZERO } else { spent })
    }
}

/// What this node may still commit; `None` if it may commit nothing at all.
fn left(account: &Account, known: &Key, key: &KeyRecord, limits: &GraceLimits, now_ms: i64) -> Option<NanoUsd> {
    if known.denied.is_some_and(|denied| key.revision <= denied) {
        return None;
    }
    let mut left = account.balance?.saturating_sub(account.tally.owed());
    if let Some(quota) = key.terms.quota {
        let spent = known.spent(key.terms.reset, now_ms)?;
        left = left.min(quota.saturating_sub(spent).saturating_sub(known.tally.owed()));
    }
    let of_key = limits.key.saturating_sub(known.tally.on_grace());
    let of_account = limits.account.saturating_sub(account.tally.on_grace());
    Some(left.min(of_key).min(of_account))
}

/// An entry, made where there was none; `None` if nobody makes room for it.
fn entry<'a, K: Clone + Eq + Hash, V>(
    all: &'a mut QuickMap<K, V>,
    max: usize,
    name: &K,
    tally: impl Fn(&V) -> &Tally,
    new: impl FnOnce() -> V,
) -> Option<&'a mut V> {
    if all.len() >= max && !all.contains_key(name) {
        make_room(all, max, tally)?;
    }
    Some(all.entry(name.clone()).or_insert_with(new))
}

/// Makes room in a table that is full: drops the older half of the entries without a running request, by the time of their
/// last update.
fn make_room<K: Eq + Hash, V>(all: &mut QuickMap<K, V>, max: usize, tally: impl Fn(&V) -> &Tally) -> Option<()> {
    let mut times: Vec<i64> = all.values().map(|one| tally(one).told_ms).collect();
    times.sort_unstable();
    let middle = times.get(times.len() / 2).copied()?;
    all.retain(|_, one| !tally(one).is_idle() || tally(one).told_ms > middle);
    (all.len() < max).then_some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        domain::ledger::{Grant, KeyTerms, ProviderState},
        store::ledger::contract::{key_id, record},
    };

    const LIMITS: GraceLimits = GraceLimits {
        key: NanoUsd::from_nanos(1_000),
        account: NanoUsd::from_nanos(1_000),
    };

    fn grant(hold: i64) -> Grant {
        Grant {
            hold: NanoUsd::from_nanos(hold),
            at_ms: 1,
            balance: NanoUsd::from_nanos(1_000),
            low_balance: None,
            quota: None,
            provider_state: ProviderState::Own,
            account_rates: Rates::default(),
            watermark: 0,
        }
    }

    fn with_account(number: u8) -> KeyRecord {
        KeyRecord {
            account: format!("account-{number}").into(),
            ..record(number)
        }
    }

    const DROPPED: Settled = Settled {
        step: None,
        cost: NanoUsd::ZERO,
        tokens_estimated: 0,
        tokens_used: 0,
    };

    #[test]
    fn the_tables_are_bounded_and_the_oldest_idle_ones_make_room() {
        let mut seen = LastSeen::bounded(4, 4);
        let admitted = |seen: &mut LastSeen, number| {
            seen.admit_alone(&with_account(number), NanoUsd::from_nanos(1), 0, &LIMITS, 100)
                .is_ok()
        };
        for number in 1..=4 {
            let (seat, _) = seen.granted(&with_account(number), &grant(1), 0, i64::from(number));
            // The first one goes on running.
            if number > 1 {
                seen.ended(&format!("account-{number}"), &key_id(number), seat, &DROPPED);
            }
        }
        seen.granted(&with_account(5), &grant(1), 0, 5);
        assert!(seen.accounts.len() <= 4 && seen.keys.len() <= 4);
        for number in [1, 4, 5] {
            assert!(admitted(&mut seen, number), "{number}");
        }
        for number in [2, 3, 6] {
            assert!(!admitted(&mut seen, number), "{number} is not known");
        }
    }

    #[test]
    fn a_quota_begins_anew_with_its_period_and_is_not_known_of_another() {
        let quota = Some(NanoUsd::from_nanos(100));
        let terms = KeyTerms {
            quota,
            reset: Reset::Daily,
            ..KeyTerms::default()
        };
        let key = KeyRecord { terms, ..record(1) };
        let quota_use = QuotaUse {
            quota: NanoUsd::from_nanos(100),
            spent: NanoUsd::from_nanos(100),
            resets_at: Some(10),
        };
        let mut seen = LastSeen::one_of(1);
        let told = Grant {
            quota: Some(quota_use),
            ..grant(0)
        };
        let (seat, _) = seen.granted(&key, &told, 0, 1);
        seen.ended(&key.account, &key.id, seat, &DROPPED);
        let mut alone = |key: &KeyRecord, now_ms| {
            let seat = seen.admit_alone(key, NanoUsd::from_nanos(500), 0, &LIMITS, now_ms);
            seat.map(|seat| seat.hold.nanos())
        };
        assert_eq!(alone(&key, 9_999), Err(None));
        let weekly = KeyTerms {
            reset: Reset::Weekly,
            ..terms
        };
        let changed = KeyRecord {
            terms: weekly,
            ..key.clone()
        };
        assert_eq!(alone(&changed, 10_000), Err(None));
        assert_eq!(alone(&key, 10_000), Ok(100));
    }

    #[test]
    fn no_grace_admits_nothing_whatever_is_known() {
        let mut seen = LastSeen::one_of(1);
        seen.granted(&record(1), &grant(1), 0, 1);
        for limits in [
            GraceLimits {
                key: NanoUsd::ZERO,
                ..LIMITS
            },
            GraceLimits {
                account: NanoUsd::ZERO,
                ..LIMITS
            },
        ] {
            let alone = seen.admit_alone(&record(1), NanoUsd::ZERO, 0, &limits, 2);
            assert_eq!(alone, Err(None));
        }
    }

    #[test]
    fn where_all_are_at_work_no_further_one_is_followed() {
        let mut seen = LastSeen::bounded(2, 2);
        for number in 1..=3 {
            seen.granted(&with_account(number), &grant(1), 0, i64::from(number));
        }
        assert_eq!((seen.accounts.len(), seen.keys.len()), (2, 2));
        let key = with_account(3);
        let alone = seen.admit_alone(&key, NanoUsd::from_nanos(1), 0, &LIMITS, 100);
        assert_eq!(alone, Err(None));
    }
}
