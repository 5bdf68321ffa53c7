//! The part of a random program that concerns leases.

use rand::RngExt;

use super::{ACCOUNTS, KEYS, NODES, Program, Running, account_of};
use crate::{
    domain::ledger::lease::{LeaseCall, LeaseChange, LeaseId, LeaseReply, RateUse},
    store::ledger::contract::{key_id, node},
};

/// Maximum number of leases in a program at one time.
const LEASES_MAX: usize = 12;

impl Program<'_> {
    /// Begins, grows, shrinks or ends a lease. Occasionally a call is repeated, concerns a missing lease, or has an old revision
    /// of the key. Also starts requests from the lease.
    pub(super) async fn lease(&mut self, what: &str) {
        let ask = self.ask_lease();
        let expected = self.model.lease(&ask, self.now());
        let mut given = self.fixture.store.lease(&ask).await;
        // The number of recalls is not sent again.
        if let (true, Ok(LeaseReply::Held(given)), LeaseReply::Held(expected)) =
            (self.rolled_back, &mut given, &expected)
        {
            given.recall = expected.recall;
        }
        assert_eq!(given.as_ref(), Ok(&expected), "{what}: {ask:?}");
        self.leases.retain(|known| known.lease != ask.lease);
        let LeaseReply::Held(leased) = expected else { return };
        if self.chance(40) {
            self.requests += 1;
            let running = Running {
                node: self.one_of(NODES),
                key: leased_key(&ask),
                request: format!("r{}", self.requests),
                at_ms: leased.grant.at_ms,
                tokens: 0,
                lease: Some(ask.lease.clone()),
            };
            self.running.push(running);
        }
        self.leases.push(ask);
        if self.leases.len() > LEASES_MAX {
            self.leases.remove(0);
        }
    }

    /// Ends several requests of one node in a row that were admitted from leases of one account, or whose settlements say so.
    pub(super) fn settle_leased(&mut self) {
        let (node, first) = (self.one_of(NODES), self.one_of(KEYS));
        for _ in 0..self.one_of(9) {
            let is_one =
                |one: &Running| one.node == node && account_of(one.key) == account_of(first) && one.lease.is_some();
            let running = match self.running.iter().position(is_one) {
                Some(index) => self.running.swap_remove(index),
                None => {
                    self.requests += 1;
                    Running {
                        node,
                        key: first,
                        request: format!("r{}", self.requests),
                        at_ms: self.now() - self.rng.random_range(0..3_600_000),
                        tokens: self.rng.random_range(0..40),
                        lease: self.some_lease().map(|ask| ask.lease).or_else(|| Some(a_lease())),
                    }
                }
            };
            self.settle_one(&running);
        }
    }

    pub(super) fn some_lease(&mut self) -> Option<LeaseCall> {
        if self.leases.is_empty() || self.chance(40) {
            return None;
        }
        let index = self.rng.random_range(0..self.leases.len());
        Some(self.leases[index].clone())
    }

    fn ask_lease(&mut self) -> LeaseCall {
        let amount = self.amount(80);
        let change = match self.rng.random_range(0..10) {
            0..5 => LeaseChange::Grow(amount),
            5..8 => LeaseChange::Return(amount),
            8 => LeaseChange::Grow(self.amount(6)),
            _ => LeaseChange::End,
        };
        let known = self.some_lease();
        let turn = known
            .as_ref()
            .map_or(1, |known| known.turn + u64::from(!self.chance(10)));
        let key = match &known {
            Some(known) => leased_key(known),
            None => self.one_of(KEYS),
        };
        let used = known.as_ref().map(|known| known.used).unwrap_or_default();
        let used = used.saturating_add(RateUse {
            requests: self.rng.random_range(0..3),
            tokens: self.rng.random_range(0..40),
        });
        let revision = self.keys[usize::from(key)].revision;
        let lease = known.map(|known| known.lease).unwrap_or_else(|| {
            self.requests += 1;
            LeaseId {
                // Names of nodes that have requests, too.
                holder: node(self.one_of(NODES + 2)),
                number: self.requests,
            }
        });
        LeaseCall {
            lease,
            node: node(self.one_of(NODES)),
            account: ACCOUNTS[account_of(key)].into(),
            key: key_id(key),
            revision: revision.saturating_sub(u64::from(self.chance(10))),
            running: self.rng.random_range(0..4),
            used,
            free: RateUse {
                requests: self.rng.random_range(0..4),
                tokens: self.rng.random_range(0..50),
            },
            places: self.rng.random_range(0..8),
            turn,
            change,
        }
    }
}

fn a_lease() -> LeaseId {
    LeaseId {
        holder: node(0),
        number: 1,
    }
}

fn leased_key(ask: &LeaseCall) -> u8 {
    (0..KEYS).find(|key| key_id(*key) == ask.key).unwrap_or_default()
}
