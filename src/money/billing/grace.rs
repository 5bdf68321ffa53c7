//! Grace: what this node admits while the store is unreachable. It is a fixed amount per key and per account, and never
//! more than what the node last knew of them allows.

use ahash::RandomState;
use parking_lot::{Mutex, MutexGuard};
use smol_str::SmolStr;

use crate::{
    domain::{
        keys::key::{KeyId, KeyRecord},
        ledger::{Admit, Denial, Grant},
        money::NanoUsd,
    },
    edges::clock,
    money::billing::{
        last_seen::{GraceLimits, LastSeen},
        tally::{Seat, Settled},
    },
};

/// The number of tables, each with its own lock: an account is in one of them, with its keys.
const SHARDS: usize = 16;

/// The grace of this node. Each decision and what it commits are one atomic step.
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
            shards: std::array::from_fn(|_| Mutex::new(LastSeen::one_of(SHARDS))),
        }
    }

    /// Records that the store has admitted a request.
    pub(super) fn granted(&self, ask: &Admit, grant: &Grant) -> Seat {
        let now_ms = clock::unix_millis();
        let (seat, becomes_low) = self.of(&ask.key.account).granted(&ask.key, grant, ask.tokens, now_ms);
        if becomes_low {
            warn_of_low(&ask.key, grant);
        }
        seat
    }

    /// Records what the store has told of a lease's account and key. The lease `goes_on`: its requests are admitted.
    pub(super) fn note_grant(&self, key: &KeyRecord, grant: &Grant, goes_on: bool) {
        let becomes_low = self
            .of(&key.account)
            .note_grant(key, grant, goes_on, clock::unix_millis());
        if becomes_low {
            warn_of_low(key, grant);
        }
    }

    /// Records that a request was admitted out of a lease.
    pub(super) fn leased(&self, key: &KeyRecord, hold: NanoUsd, tokens: u64) -> Seat {
        self.of(&key.account).leased(key, hold, tokens, clock::unix_millis())
    }

    /// Records that the store has refused a request.
    pub(super) fn refused(&self, key: &KeyRecord, denial: Denial) {
        self.of(&key.account).refused(key, denial, clock::unix_millis());
    }

    /// Gives the account no further grace, since an operator suspended it on this node.
    pub(super) fn stopped(&self, account: &SmolStr) {
        self.of(account).account_refused(account, clock::unix_millis());
    }

    /// Admits a request without the store if the grace allows it, and holds its estimate or what is left. The error is as
    /// that of [`LastSeen::admit_alone`].
    pub(super) fn admit(&self, ask: &Admit) -> Result<Seat, Option<Denial>> {
        let now_ms = clock::unix_millis();
        self.of(&ask.key.account)
            .admit_alone(&ask.key, ask.estimate, ask.tokens, &self.limits, now_ms)
    }

    /// The rate or concurrency limit of the key or its account that any request exceeds now, by what this node has
    /// admitted and refused itself. Other nodes only add to that, so the store would say no as well, unless somebody has
    /// changed the limit. Asks nobody.
    pub(super) fn foresees(&self, key: &KeyRecord) -> Option<Denial> {
        self.of(&key.account).foresees(key, clock::unix_millis())
    }

    /// Whether the store has said within the last seconds that the account has money and the key some of its quota, and
    /// this node has not spent it since. Asks nobody.
    pub(super) fn vouches_for(&self, key: &KeyRecord) -> bool {
        self.of(&key.account).vouches_for(key, clock::unix_millis())
    }

    /// Counts a refused request in the rate of its key.
    pub(super) fn count_refused(&self, key: &KeyRecord) {
        self.of(&key.account).count_refused(key, clock::unix_millis());
    }

    /// Records that a request has ended.
    pub(super) fn ended(&self, account: &str, key: &KeyId, seat: Seat, end: &Settled) {
        self.of(account).ended(account, key, seat, end);
    }

    /// Whether this node could admit any request without the store.
    pub(super) fn is_left(&self) -> bool {
        self.shards.iter().any(|shard| shard.lock().may_give(&self.limits))
    }

    /// What was committed without the store, and the store has not counted yet.
    pub(super) fn committed(&self) -> NanoUsd {
        let of_shards = self.shards.iter().map(|shard| shard.lock().on_grace());
        of_shards.fold(NanoUsd::ZERO, NanoUsd::saturating_add)
    }

    /// How many accounts' balances were low when the store last told of them.
    pub(super) fn low(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().low()).sum()
    }

    fn of(&self, account: &str) -> MutexGuard<'_, LastSeen> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        domain::ledger::{ProviderState, Rates},
        store::ledger::contract::{node, record},
    };

    fn ask(number: usize) -> Admit {
        let key = KeyRecord {
            account: format!("account-{number}").into(),
            ..record(u8::try_from(number).unwrap())
        };
        Admit {
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
            account_rates: Rates::default(),
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
        assert!(!grace.is_left());
        // More than there are tables.
        let accounts = 10 * SHARDS;
        for number in 0..accounts {
            grace.granted(&ask(number), &grant(if number % 2 == 0 { 50 } else { 51 }));
        }
        assert_eq!(grace.low(), accounts / 2);
        for number in 0..accounts {
            assert!(grace.is_left());
            let holds = [(); 4].map(|()| grace.admit(&ask(number)).map(|seat| seat.hold.nanos()));
            assert_eq!(holds, [Ok(10), Ok(10), Ok(5), Err(None)], "{number}");
        }
        assert!(!grace.is_left(), "nobody has any");
        let all = i64::try_from(accounts).unwrap() * limit.nanos();
        assert_eq!(grace.committed().nanos(), all);
        for number in 0..accounts {
            grace.note_grant(&ask(number).key, &grant(51), true);
        }
        assert_eq!(grace.low(), 0);
        grace.stopped(&ask(3).key.account);
        assert_eq!(grace.admit(&ask(3)).map(drop), Err(None));
    }
}
