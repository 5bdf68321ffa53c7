//! Grace: admits requests while the store is unreachable, up to a fixed amount per key and per account. Grace never exceeds the
//! last known balance and quota. An admission call that the store did not answer may have left a hold in the store. The node ends
//! such a hold later.

use std::sync::atomic::{AtomicU64, Ordering};

use ahash::RandomState;
use parking_lot::{Mutex, MutexGuard};
use smol_str::SmolStr;

use crate::{
    domain::{
        keys::{KeyId, KeyRecord},
        ledger::{AccountChange, AdmitCall, Denial, Grant, Settlement},
        money::NanoUsd,
    },
    edges::clock,
    journal::{Journal, JournalError, STEP_BYTES_MAX},
    money::billing::{
        last_seen::{GraceLimits, LastSeen},
        tally::{CountedRequest, SettledCharge},
    },
};

/// Number of tables, each with its own lock. An account and its keys are in the same table.
const SHARDS: usize = 16;

/// The grace of this node. Deciding about a request and committing its money is one atomic operation.
#[derive(Debug)]
pub(super) struct Grace {
    limits: GraceLimits,
    hashing: RandomState,
    shards: [Mutex<LastSeen>; SHARDS],
}

impl Grace {
    pub(super) fn new(limits: GraceLimits) -> Self {
        Self {
            limits,
            hashing: RandomState::new(),
            shards: std::array::from_fn(|_| Mutex::new(LastSeen::new_shard(SHARDS))),
        }
    }

    /// Records that the store has admitted a request. Returns the amounts that the request adds to the counts.
    pub(super) fn on_granted(&self, ask: &AdmitCall, grant: &Grant) -> CountedRequest {
        let now_ms = clock::unix_millis();
        let (seat, becomes_low) = self
            .lock_shard(&ask.key.account)
            .on_granted(&ask.key, grant, ask.tokens, now_ms);
        if becomes_low {
            warn_of_low(&ask.key, grant);
        }
        seat
    }

    /// Records the state of a lease's account and key, as reported by the store. If `goes_on` is true, the lease can admit
    /// further requests.
    pub(super) fn record_grant(&self, key: &KeyRecord, grant: &Grant, goes_on: bool) {
        let becomes_low = self
            .lock_shard(&key.account)
            .record_grant(key, grant, goes_on, clock::unix_millis());
        if becomes_low {
            warn_of_low(key, grant);
        }
    }

    /// Records that a request was admitted from a lease. Returns the amounts that the request adds to the counts.
    pub(super) fn on_lease_admission(&self, key: &KeyRecord, hold: NanoUsd, tokens: u64) -> CountedRequest {
        self.lock_shard(&key.account)
            .on_lease_admission(key, hold, tokens, clock::unix_millis())
    }

    /// Records that the store has denied a request.
    pub(super) fn on_denied(&self, key: &KeyRecord, denial: Denial) {
        self.lock_shard(&key.account)
            .on_denied(key, denial, clock::unix_millis());
    }

    /// Ends the account's grace, because an operator has suspended the account on this node.
    pub(super) fn suspend(&self, account: &SmolStr) {
        self.lock_shard(account)
            .on_account_denied(account, clock::unix_millis());
    }

    /// Admits a request without the store if its key and account have grace left. Commits the request's estimate or the remaining
    /// grace, whichever is smaller. The error is the same as that of [`LastSeen::admit_by_grace`].
    pub(super) fn admit(&self, ask: &AdmitCall) -> Result<CountedRequest, Option<Denial>> {
        let now_ms = clock::unix_millis();
        self.lock_shard(&ask.key.account)
            .admit_by_grace(&ask.key, ask.estimate, ask.tokens, &self.limits, now_ms)
    }

    /// Returns the denial that any request of the key would get now because of a rate or concurrency limit of the key or its
    /// account. Only this node's own counts of admitted and refused requests are used. Other nodes can only add to the counts, so
    /// the store would deny the request as well, unless the limit has changed. Makes no call.
    pub(super) fn predict_denial(&self, key: &KeyRecord) -> Option<Denial> {
        self.lock_shard(&key.account).predict_denial(key, clock::unix_millis())
    }

    /// Whether the account and the key's quota have money left, according to a report of the store from the last few seconds. The
    /// amounts that this node has held or charged since that report are subtracted. Makes no call.
    pub(super) fn has_recent_funds(&self, key: &KeyRecord) -> bool {
        self.lock_shard(&key.account)
            .has_recent_funds(key, clock::unix_millis())
    }

    /// Counts a refused request against the rate limit of its key.
    pub(super) fn count_refused(&self, key: &KeyRecord) {
        self.lock_shard(&key.account).count_refused(key, clock::unix_millis());
    }

    /// Records that a request has ended.
    pub(super) fn on_end(&self, account: &str, key: &KeyId, seat: CountedRequest, end: &SettledCharge) {
        self.lock_shard(account).on_end(account, key, seat, end);
    }

    /// Whether this node could admit any request by grace.
    pub(super) fn can_admit_any(&self) -> bool {
        self.shards.iter().any(|shard| shard.lock().can_admit_any(&self.limits))
    }

    /// The money that this node has committed by grace and that the store has not charged yet.
    pub(super) fn committed(&self) -> NanoUsd {
        let of_shards = self.shards.iter().map(|shard| shard.lock().grace_committed());
        of_shards.fold(NanoUsd::ZERO, NanoUsd::saturating_add)
    }

    /// The number of accounts whose balance was low when the store last reported it.
    pub(super) fn low_accounts(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().low_accounts()).sum()
    }

    fn lock_shard(&self, account: &str) -> MutexGuard<'_, LastSeen> {
        let [first, others @ ..] = &self.shards;
        let at = self.hashing.hash_one(account) % SHARDS as u64;
        let shard = usize::try_from(at).ok().and_then(|at| others.get(at)).unwrap_or(first);
        shard.lock()
    }
}

fn warn_of_low(key: &KeyRecord, grant: &Grant) {
    let account = key.account.as_str();
    tracing::warn!(account, balance_usd = %grant.balance, "the account's balance is low: add credit to it");
}

/// Maximum number of unconfirmed holds that the node remembers. It forgets further ones. They stay in the store until they
/// expire.
const UNCONFIRMED_MAX: usize = 10_000;

/// The unconfirmed holds of this node. If an admission call gets no answer, the request's hold may exist in the store, and the
/// node's renewals keep it alive. When the store can be reached again, the node ends each of these holds with a step. The step
/// has no effect if the hold does not exist.
#[derive(Debug, Default)]
pub(super) struct UnconfirmedHolds {
    holds: Mutex<Vec<UnconfirmedHold>>,
    lost: AtomicU64,
}

/// A hold that may exist in the store.
#[derive(Debug)]
pub(super) struct UnconfirmedHold {
    account: SmolStr,
    key: KeyId,
    request: SmolStr,
}

/// A running admission call to the ledger. If this is dropped before [`AdmitCallGuard::disarm`], the request's hold is
/// unconfirmed.
pub(super) struct AdmitCallGuard<'a> {
    all: &'a UnconfirmedHolds,
    ask: Option<&'a AdmitCall>,
}

impl UnconfirmedHolds {
    /// Records the start of an admission call.
    pub(super) fn begin<'a>(&'a self, ask: &'a AdmitCall) -> AdmitCallGuard<'a> {
        AdmitCallGuard {
            all: self,
            ask: Some(ask),
        }
    }

    /// Removes and returns all unconfirmed holds.
    pub(super) fn take_all(&self) -> Vec<UnconfirmedHold> {
        std::mem::take(&mut *self.holds.lock())
    }

    /// Puts back holds that could not be ended.
    pub(super) fn put_back(&self, holds: Vec<UnconfirmedHold>) {
        let mut all = self.holds.lock();
        for hold in holds {
            self.add(&mut all, hold);
        }
    }

    /// The number of unconfirmed holds that were dropped because more than [`UNCONFIRMED_MAX`] were stored.
    pub(super) fn dropped(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    fn add(&self, all: &mut Vec<UnconfirmedHold>, hold: UnconfirmedHold) {
        if all.len() < UNCONFIRMED_MAX {
            all.push(hold);
        } else {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl UnconfirmedHold {
    /// The account to which the hold belongs.
    pub(super) fn account(&self) -> &str {
        &self.account
    }

    /// Ends the hold, if it exists, with a step in the journal.
    pub(super) fn end(&self, journal: &Journal) -> Result<(), JournalError> {
        let (request, key) = (self.request.clone(), self.key.clone());
        let settlement = Settlement::without_charge(request, key, clock::unix_millis(), 0);
        let mut reservation = journal.reserve(STEP_BYTES_MAX)?;
        let change = AccountChange::Settle(Box::new(settlement));
        journal
            .append_step(&self.account, change, 0, &mut reservation)
            .map(drop)
    }
}

impl AdmitCallGuard<'_> {
    /// Records that the call's result is known, so that it leaves no unconfirmed hold.
    pub(super) fn disarm(mut self) {
        self.ask = None;
    }
}

impl Drop for AdmitCallGuard<'_> {
    fn drop(&mut self) {
        let Some(ask) = self.ask else { return };
        let hold = UnconfirmedHold {
            account: ask.key.account.clone(),
            key: ask.key.id.clone(),
            request: ask.request.clone(),
        };
        self.all.add(&mut self.all.holds.lock(), hold);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        domain::ledger::{ProviderState, RateLimits},
        store::ledger::contract::{key_id, node, record},
    };

    fn ask(number: usize) -> AdmitCall {
        let key = KeyRecord {
            account: format!("account-{number}").into(),
            ..record(u8::try_from(number).unwrap())
        };
        AdmitCall {
            node: node(1),
            request: "r".into(),
            key: key.into(),
            estimate: NanoUsd::from_nanos(10),
            tokens: 0,
            ended_key: 0,
            ended_account: 0,
        }
    }

    fn grant(balance: i64) -> Grant {
        Grant {
            hold: NanoUsd::ZERO,
            at_ms: 1,
            balance: NanoUsd::from_nanos(balance),
            low_balance: Some(NanoUsd::from_nanos(50)),
            quota: None,
            provider_state: ProviderState::Own,
            account_rates: RateLimits::default(),
            watermark: 0,
        }
    }

    #[test]
    fn each_account_is_for_itself_and_the_figures_are_those_of_all() {
        let limit = NanoUsd::from_nanos(25);
        let limits = GraceLimits {
            key: limit,
            account: limit,
        };
        let grace = Grace::new(limits);
        assert!(!grace.can_admit_any());
        // There are more accounts than tables.
        let accounts = 10 * SHARDS;
        for number in 0..accounts {
            grace.on_granted(&ask(number), &grant(if number % 2 == 0 { 50 } else { 51 }));
        }
        assert_eq!(grace.low_accounts(), accounts / 2);
        for number in 0..accounts {
            assert!(grace.can_admit_any());
            let holds = [(); 4].map(|()| grace.admit(&ask(number)).map(|seat| seat.hold.nanos()));
            assert_eq!(holds, [Ok(10), Ok(10), Ok(5), Err(None)], "{number}");
        }
        assert!(!grace.can_admit_any(), "nobody has any");
        let all = i64::try_from(accounts).unwrap() * limit.nanos();
        assert_eq!(grace.committed().nanos(), all);
        for number in 0..accounts {
            grace.record_grant(&ask(number).key, &grant(51), true);
        }
        assert_eq!(grace.low_accounts(), 0);
        grace.suspend(&ask(3).key.account);
        assert_eq!(grace.admit(&ask(3)).map(drop), Err(None));
    }

    #[test]
    fn unconfirmed_holds_are_bounded_and_those_beyond_it_are_counted() {
        let unconfirmed = UnconfirmedHolds::default();
        let hold = |number: usize| UnconfirmedHold {
            account: "acme".into(),
            key: key_id(1),
            request: format!("r{number}").into(),
        };
        unconfirmed.put_back((0..UNCONFIRMED_MAX).map(hold).collect());
        assert_eq!(unconfirmed.dropped(), 0);
        unconfirmed.put_back(vec![hold(UNCONFIRMED_MAX)]);
        assert_eq!(
            (unconfirmed.dropped(), unconfirmed.take_all().len()),
            (1, UNCONFIRMED_MAX)
        );
    }
}
