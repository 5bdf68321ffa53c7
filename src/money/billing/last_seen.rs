//! The last state of accounts and keys that the store reported to this node, and what the node has admitted since: a bounded
//! table that grants and denials update, and by which the node predicts denials and admits by grace.

mod foreseen;
mod granted;

use std::hash::Hash;

use smol_str::SmolStr;

use crate::{
    domain::{
        keys::key::{KeyId, KeyRecord},
        ledger::{Denial, LimitScope, QuotaReset, QuotaUse, RateLimits},
        money::NanoUsd,
        quick_map::QuickMap,
    },
    money::billing::tally::{CountedRequest, LocalCounts, SettledCharge},
};

/// Maximum number of accounts remembered. Those updated longest ago are dropped first.
const ACCOUNTS_MAX: usize = 100_000;
/// Maximum number of keys remembered, by the same rule.
const KEYS_MAX: usize = 100_000;

/// The money that this node may commit until the store answers again.
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
    accounts: QuickMap<SmolStr, SeenAccount>,
    keys: QuickMap<KeyId, SeenKey>,
    accounts_max: usize,
    keys_max: usize,
}

#[derive(Debug, Default)]
struct SeenAccount {
    tally: LocalCounts,
    /// The last known balance; `None` if the account was denied as unknown, suspended or without money.
    balance: Option<NanoUsd>,
    /// Whether the balance was low when the store last reported it.
    is_low: bool,
    rates: RateLimits,
}

#[derive(Debug, Default)]
struct SeenKey {
    tally: LocalCounts,
    /// The part of the quota that was spent, the kind of its period, and the period's end in Unix seconds.
    spent: Option<(NanoUsd, QuotaReset, Option<i64>)>,
    /// The key's revision at which the store reported it as revoked or expired.
    denied: Option<u64>,
    rates: RateLimits,
}

impl LastSeen {
    /// One of `tables` tables that share the maximum numbers.
    pub(super) fn new_shard(tables: usize) -> Self {
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

    /// Records that the store has denied a request.
    pub(super) fn on_denied(&mut self, key: &KeyRecord, denial: Denial, now_ms: i64) {
        match denial {
            Denial::AccountUnknown | Denial::AccountSuspended | Denial::BalanceExhausted => {
                self.on_account_denied(&key.account, now_ms);
            }
            Denial::KeyRevoked | Denial::KeyExpired => {
                if let Some(known) = self.key(&key.id, now_ms) {
                    known.denied = Some(key.revision);
                }
            }
            Denial::QuotaExhausted(quota_use) | Denial::QuotaHeld(quota_use) => {
                if let Some(known) = self.key(&key.id, now_ms) {
                    known.set_quota_use(key, Some(&quota_use));
                }
            }
            Denial::RateLimited {
                scope,
                retry_after_ms,
                lent: false,
                ..
            } => {
                let tally = match scope {
                    LimitScope::Key => self.key(&key.id, now_ms).map(|known| &mut known.tally),
                    LimitScope::Account => self.account(&key.account, now_ms).map(|account| &mut account.tally),
                };
                if let Some(tally) = tally {
                    tally.on_rate_limited(denial, retry_after_ms, now_ms);
                }
            }
            // Other requests may end and leases come back at any moment, so these denials are not remembered.
            Denial::BalanceHeld | Denial::Concurrency { .. } | Denial::RateLimited { .. } => {}
        }
    }

    /// Records that an account was denied: nothing is admitted until the store admits again.
    pub(super) fn on_account_denied(&mut self, account: &SmolStr, now_ms: i64) {
        if let Some(account) = self.account(account, now_ms) {
            account.balance = None;
        }
    }

    /// Admits a request by local knowledge, and commits its estimate or what is left. The error is the rate or concurrency limit
    /// that the request exceeds; `None` if the account or key is unknown here, was denied, or has used up its grace.
    pub(super) fn admit_by_grace(
        &mut self,
        key: &KeyRecord,
        estimate: NanoUsd,
        tokens: u64,
        limits: &GraceLimits,
        now_ms: i64,
    ) -> Result<CountedRequest, Option<Denial>> {
        let account = self.accounts.get(&key.account).ok_or(None)?;
        let unseen = SeenKey::default();
        let known = self.keys.get(&key.id).unwrap_or(&unseen);
        let left = remaining(account, known, key, limits, now_ms).filter(|left| *left > NanoUsd::ZERO);
        let left = left.ok_or(None)?;
        let (of_key, of_account) = (key.terms.rates, account.rates);
        let check = || {
            known.tally.check_running(LimitScope::Key, &of_key)?;
            account.tally.check_running(LimitScope::Account, &of_account)?;
            let taken = known.tally.reserve(LimitScope::Key, &of_key, tokens, now_ms)?;
            Ok((
                taken,
                account
                    .tally
                    .reserve(LimitScope::Account, &of_account, tokens, now_ms)?,
            ))
        };
        let (key_buckets, account_buckets) = check().map_err(Some)?;
        let seat = CountedRequest {
            hold: estimate.max(NanoUsd::ZERO).min(left),
            by_grace: true,
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

    /// Records that a request has ended, no matter whether the store, a lease or grace admitted it.
    pub(super) fn on_end(&mut self, account: &str, key: &KeyId, seat: CountedRequest, end: &SettledCharge) {
        if let Some(account) = self.accounts.get_mut(account) {
            account.tally.end(seat, end, &account.rates);
        }
        if let Some(known) = self.keys.get_mut(key) {
            known.tally.end(seat, end, &known.rates);
        }
    }

    /// Whether this node could admit a request of any account by grace.
    pub(super) fn can_admit_any(&self, limits: &GraceLimits) -> bool {
        let some = |account: &SeenAccount| {
            let balance = account.balance.unwrap_or(NanoUsd::ZERO);
            balance > account.tally.owed() && limits.account > account.tally.grace_committed()
        };
        limits.key > NanoUsd::ZERO && self.accounts.values().any(some)
    }

    /// The money that all accounts have committed by grace.
    pub(super) fn grace_committed(&self) -> NanoUsd {
        let all = self.accounts.values().map(|account| account.tally.grace_committed());
        all.fold(NanoUsd::ZERO, NanoUsd::saturating_add)
    }

    fn account(&mut self, name: &SmolStr, now_ms: i64) -> Option<&mut SeenAccount> {
        let new = || SeenAccount {
            tally: LocalCounts::new(now_ms),
            ..SeenAccount::default()
        };
        entry_or_new(
            &mut self.accounts,
            self.accounts_max,
            name,
            |account| &account.tally,
            new,
        )
    }

    fn key(&mut self, id: &KeyId, now_ms: i64) -> Option<&mut SeenKey> {
        let new = || SeenKey {
            tally: LocalCounts::new(now_ms),
            ..SeenKey::default()
        };
        entry_or_new(&mut self.keys, self.keys_max, id, |key| &key.tally, new)
    }
}

impl SeenKey {
    fn set_quota_use(&mut self, key: &KeyRecord, quota_use: Option<&QuotaUse>) {
        self.spent = quota_use.map(|quota_use| (quota_use.spent, key.terms.reset, quota_use.resets_at));
    }

    /// The part of the quota that was spent; `None` if unknown.
    fn spent(&self, reset: QuotaReset, now_ms: i64) -> Option<NanoUsd> {
        let (spent, of, resets_at) = self.spent.filter(|(_, of, _)| *of == reset)?;
        let is_over = of != QuotaReset::None && resets_at.is_some_and(|end| end <= now_ms.div_euclid(1000));
        Some(if is_over { NanoUsd::ZERO } else { spent })
    }
}

/// The money that this node may still commit; `None` if the key or account was denied, or is not known well enough.
fn remaining(
    account: &SeenAccount,
    known: &SeenKey,
    key: &KeyRecord,
    limits: &GraceLimits,
    now_ms: i64,
) -> Option<NanoUsd> {
    if known.denied.is_some_and(|denied| key.revision <= denied) {
        return None;
    }
    let mut left = account.balance?.saturating_sub(account.tally.owed());
    if let Some(quota) = key.terms.quota {
        let spent = known.spent(key.terms.reset, now_ms)?;
        left = left.min(quota.saturating_sub(spent).saturating_sub(known.tally.owed()));
    }
    let of_key = limits.key.saturating_sub(known.tally.grace_committed());
    let of_account = limits.account.saturating_sub(account.tally.grace_committed());
    Some(left.min(of_key).min(of_account))
}

/// The entry of `name`, created if it is missing; `None` if the table is full of entries with running requests.
fn entry_or_new<'a, K: Clone + Eq + Hash, V>(
    all: &'a mut QuickMap<K, V>,
    max: usize,
    name: &K,
    tally: impl Fn(&V) -> &LocalCounts,
    new: impl FnOnce() -> V,
) -> Option<&'a mut V> {
    if all.len() >= max && !all.contains_key(name) {
        make_room(all, max, tally)?;
    }
    Some(all.entry(name.clone()).or_insert_with(new))
}

/// Makes room in a full table: drops the entries without a running request that are among the older half, by the time of their
/// last update.
fn make_room<K: Eq + Hash, V>(all: &mut QuickMap<K, V>, max: usize, tally: impl Fn(&V) -> &LocalCounts) -> Option<()> {
    let mut times: Vec<i64> = all.values().map(|one| tally(one).last_reply_ms).collect();
    times.sort_unstable();
    let middle = times.get(times.len() / 2).copied()?;
    all.retain(|_, one| !tally(one).is_idle() || tally(one).last_reply_ms > middle);
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
            account_rates: RateLimits::default(),
            watermark: 0,
        }
    }

    fn with_account(number: u8) -> KeyRecord {
        KeyRecord {
            account: format!("account-{number}").into(),
            ..record(number)
        }
    }

    const DROPPED: SettledCharge = SettledCharge {
        step: None,
        cost: NanoUsd::ZERO,
        tokens_estimated: 0,
        tokens_used: 0,
    };

    #[test]
    fn the_tables_are_bounded_and_the_oldest_idle_ones_make_room() {
        let mut seen = LastSeen::bounded(4, 4);
        let admitted = |seen: &mut LastSeen, number| {
            seen.admit_by_grace(&with_account(number), NanoUsd::from_nanos(1), 0, &LIMITS, 100)
                .is_ok()
        };
        for number in 1..=4 {
            let (seat, _) = seen.on_granted(&with_account(number), &grant(1), 0, i64::from(number));
            // The first one goes on running.
            if number > 1 {
                seen.on_end(&format!("account-{number}"), &key_id(number), seat, &DROPPED);
            }
        }
        seen.on_granted(&with_account(5), &grant(1), 0, 5);
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
            reset: QuotaReset::Daily,
            ..KeyTerms::default()
        };
        let key = KeyRecord { terms, ..record(1) };
        let quota_use = QuotaUse {
            quota: NanoUsd::from_nanos(100),
            spent: NanoUsd::from_nanos(100),
            resets_at: Some(10),
        };
        let mut seen = LastSeen::new_shard(1);
        let told = Grant {
            quota: Some(quota_use),
            ..grant(0)
        };
        let (seat, _) = seen.on_granted(&key, &told, 0, 1);
        seen.on_end(&key.account, &key.id, seat, &DROPPED);
        let mut alone = |key: &KeyRecord, now_ms| {
            let seat = seen.admit_by_grace(key, NanoUsd::from_nanos(500), 0, &LIMITS, now_ms);
            seat.map(|seat| seat.hold.nanos())
        };
        assert_eq!(alone(&key, 9_999), Err(None));
        let weekly = KeyTerms {
            reset: QuotaReset::Weekly,
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
        let mut seen = LastSeen::new_shard(1);
        seen.on_granted(&record(1), &grant(1), 0, 1);
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
            let alone = seen.admit_by_grace(&record(1), NanoUsd::ZERO, 0, &limits, 2);
            assert_eq!(alone, Err(None));
        }
    }

    #[test]
    fn where_all_are_at_work_no_further_one_is_followed() {
        let mut seen = LastSeen::bounded(2, 2);
        for number in 1..=3 {
            seen.on_granted(&with_account(number), &grant(1), 0, i64::from(number));
        }
        assert_eq!((seen.accounts.len(), seen.keys.len()), (2, 2));
        let key = with_account(3);
        let alone = seen.admit_by_grace(&key, NanoUsd::from_nanos(1), 0, &LIMITS, 100);
        assert_eq!(alone, Err(None));
    }
}
