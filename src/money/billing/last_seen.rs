//! The state of accounts and keys as the store last reported it to this node, and the requests that the node has admitted since.
//! They are in a table of bounded size, which grants and denials update. The node uses the table to predict denials and to admit
//! by grace.

use std::hash::Hash;

use smol_str::SmolStr;

use crate::{
    domain::{
        QuickMap,
        keys::{KeyId, KeyRecord},
        ledger::{Denial, Grant, LimitScope, QuotaReset, QuotaUse, RateLimits},
        money::NanoUsd,
    },
    money::billing::tally::{CountedRequest, LocalCounts, SettledCharge},
};

/// Maximum number of accounts in the table. The accounts whose last update is oldest are dropped first.
const ACCOUNTS_MAX: usize = 100_000;
/// Maximum number of keys in the table. The keys whose last update is oldest are dropped first.
const KEYS_MAX: usize = 100_000;

/// The amounts that this node may commit by grace until the store answers again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GraceLimits {
    /// The maximum amount for each key.
    pub key: NanoUsd,
    /// The maximum amount for all keys of one account together.
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
    /// `None` if the spent part of the quota is unknown. Otherwise, contains the spent part, the rule by which the quota is
    /// reset, and the end of the current period in Unix seconds. The end of the period is `None` if the quota is never reset.
    spent: Option<(NanoUsd, QuotaReset, Option<i64>)>,
    /// The key's revision at which the store reported the key as revoked or expired; `None` if the store has not reported this.
    denied: Option<u64>,
    rates: RateLimits,
}

impl LastSeen {
    /// Creates one of `tables` tables. The maximum numbers of entries are divided evenly among the tables.
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
            // These denials are not remembered, because requests can end and leases can be returned at any moment.
            Denial::BalanceHeld | Denial::Concurrency { .. } | Denial::RateLimited { .. } => {}
        }
    }

    /// Records that an account was denied. No request of the account is admitted by grace until the store admits one again.
    pub(super) fn on_account_denied(&mut self, account: &SmolStr, now_ms: i64) {
        if let Some(account) = self.account(account, now_ms) {
            account.balance = None;
        }
    }

    /// Admits a request on the basis of this node's own data. Commits the request's estimate or the remaining amount, whichever
    /// is smaller. The error is the denial by the rate or concurrency limit that the request exceeds; `None` if the account or
    /// key is unknown here, was denied, or has used up its grace.
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
        // If the table has no room, the request cannot be recorded.
        let known = self.key(&key.id, now_ms).ok_or(None)?;
        known.rates = of_key;
        known.tally.begin(seat, Some(key_buckets));
        if let Some(account) = self.accounts.get_mut(&key.account) {
            account.tally.begin(seat, Some(account_buckets));
        }
        Ok(seat)
    }

    /// Records that a request has ended. The request may have been admitted by the store, from a lease, or by grace.
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

    /// The spent part of the quota; `None` if it is unknown.
    fn spent(&self, reset: QuotaReset, now_ms: i64) -> Option<NanoUsd> {
        let (spent, of, resets_at) = self.spent.filter(|(_, of, _)| *of == reset)?;
        let is_over = of != QuotaReset::None && resets_at.is_some_and(|end| end <= now_ms.div_euclid(1000));
        Some(if is_over { NanoUsd::ZERO } else { spent })
    }
}

/// Returns the amount that this node may still commit; `None` if the key or account was denied, or its state is unknown.
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

/// Returns the entry of `name`, and creates the entry if it is missing. Returns `None` if the table is full of entries with
/// running requests.
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

/// Makes room in a full table. Considers the half of the entries whose last update is oldest, and drops those without a running
/// request. Returns `None` if none could be dropped.
fn make_room<K: Eq + Hash, V>(all: &mut QuickMap<K, V>, max: usize, tally: impl Fn(&V) -> &LocalCounts) -> Option<()> {
    let mut times: Vec<i64> = all.values().map(|one| tally(one).last_reply_ms).collect();
    times.sort_unstable();
    let middle = times.get(times.len() / 2).copied()?;
    all.retain(|_, one| !tally(one).is_idle() || tally(one).last_reply_ms > middle);
    (all.len() < max).then_some(())
}

/// The time, in milliseconds, for which this node trusts the store's report that an account and a key have money left.
const VOUCHED_MS: i64 = 10_000;

/// Grace limits that never apply, so that only the balance and the quota limit a request.
const UNBOUNDED: GraceLimits = GraceLimits {
    key: NanoUsd::MAX,
    account: NanoUsd::MAX,
};

impl LastSeen {
    /// Returns the denial by a rate or concurrency limit that every request of the key would exceed now, even the smallest.
    pub(in crate::money::billing) fn predict_denial(&self, key: &KeyRecord, now_ms: i64) -> Option<Denial> {
        let rates = &key.terms.rates;
        let of_key = || {
            // Most keys have no limit of their own, so no lookup is needed.
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

    /// Whether the account and the key's quota have money left, according to a report of the store that is at most [`VOUCHED_MS`]
    /// old. The amounts that this node has held or charged since that report are subtracted.
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

    /// Records a refused request of the key. It uses as much of the key's rate on this node as a served request.
    pub(in crate::money::billing) fn count_refused(&mut self, key: &KeyRecord, now_ms: i64) {
        if key.terms.rates.rpm.is_none() {
            return;
        }
        if let Some(known) = self.key(&key.id, now_ms) {
            known.tally.count_refused(&key.terms.rates, now_ms);
        }
    }
}

impl LastSeen {
    /// Records that the store has admitted a request. Returns the amounts that the request adds to the counts, and whether the
    /// account's balance has become low.
    pub(in crate::money::billing) fn on_granted(
        &mut self,
        key: &KeyRecord,
        grant: &Grant,
        tokens: u64,
        now_ms: i64,
    ) -> (CountedRequest, bool) {
        let seat = CountedRequest {
            hold: grant.hold,
            by_grace: false,
        };
        let mut becomes_low = false;
        if let Some(account) = self.account(&key.account, now_ms) {
            becomes_low = account.record_grant(grant, true, now_ms);
            account.begin(seat, tokens, now_ms);
        }
        if let Some(known) = self.key(&key.id, now_ms) {
            known.record_grant(key, grant, true, now_ms);
            known.begin(seat, tokens, now_ms);
        }
        (seat, becomes_low)
    }

    /// Records the state of account and key, as reported by the store. Removes a recorded denial only if `admits` is true,
    /// because the store's reply for an ended lease is a grant even if the account is suspended. Returns whether the balance has
    /// become low.
    pub(in crate::money::billing) fn record_grant(
        &mut self,
        key: &KeyRecord,
        grant: &Grant,
        admits: bool,
        now_ms: i64,
    ) -> bool {
        if let Some(known) = self.key(&key.id, now_ms) {
            known.record_grant(key, grant, admits, now_ms);
        }
        let account = self.account(&key.account, now_ms);
        account.is_some_and(|account| account.record_grant(grant, admits, now_ms))
    }

    /// Records that a request was admitted from a lease. Returns the amounts that the request adds to the counts.
    pub(in crate::money::billing) fn on_lease_admission(
        &mut self,
        key: &KeyRecord,
        hold: NanoUsd,
        tokens: u64,
        now_ms: i64,
    ) -> CountedRequest {
        let seat = CountedRequest { hold, by_grace: false };
        if let Some(account) = self.account(&key.account, now_ms) {
            account.begin(seat, tokens, now_ms);
        }
        if let Some(known) = self.key(&key.id, now_ms) {
            known.begin(seat, tokens, now_ms);
        }
        seat
    }

    /// The number of accounts whose balance was low when the store last reported it.
    pub(in crate::money::billing) fn low_accounts(&self) -> usize {
        self.accounts.values().filter(|account| account.is_low).count()
    }
}

impl SeenAccount {
    fn record_grant(&mut self, grant: &Grant, admits: bool, now_ms: i64) -> bool {
        self.tally.on_reply(grant.watermark, now_ms);
        self.rates = grant.account_rates;
        if admits || self.balance.is_some() {
            self.balance = Some(grant.balance);
        }
        let was_low = self.is_low;
        self.is_low = grant.low_balance.is_some_and(|low| grant.balance <= low);
        self.is_low && !was_low
    }

    fn begin(&mut self, seat: CountedRequest, tokens: u64, now_ms: i64) {
        let taken = self.tally.reserve(LimitScope::Account, &self.rates, tokens, now_ms);
        self.tally.begin(seat, taken.ok());
    }
}

impl SeenKey {
    fn record_grant(&mut self, key: &KeyRecord, grant: &Grant, admits: bool, now_ms: i64) {
        self.tally.on_reply(grant.watermark, now_ms);
        self.set_quota_use(key, grant.quota.as_ref());
        self.rates = key.terms.rates;
        if admits {
            self.denied = None;
        }
    }

    fn begin(&mut self, seat: CountedRequest, tokens: u64, now_ms: i64) {
        let taken = self.tally.reserve(LimitScope::Key, &self.rates, tokens, now_ms);
        self.tally.begin(seat, taken.ok());
    }
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
            // The first request does not end.
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

#[cfg(test)]
mod foreseen_tests {
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
        // Requests beyond the rate use nothing more of it, so a client is served if it waits as long as the denial says.
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
