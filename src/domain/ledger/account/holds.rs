//! The holds of an account, by node, with the sums that admission needs. With these sums, admission never iterates over the
//! holds.
//!
//! For each node that has holds, the account has the following data, which is removed when the node lease lapses:
//!
//! - `until_ms`: the end of the node lease. The node lease has lapsed if `until_ms <= now`.
//! - for each request: the key, the amount, and the time of admission.
//! - the sum of all amounts, and the number of running requests.
//! - for each key: the number of running requests, and the sums of the held amounts by day of admission. A request or a lease
//!   lasts a day at most, so the amount held in a week or a month is the sum of a few days.
//!
//! A lease ([`crate::domain::ledger::lease`]) is a hold like that of a request, with these differences: Its number of running
//! requests is reported by its holder. Charges can be deducted from it. The amounts of leases are also added up separately, in
//! total and by key. The same applies to the rates and slots that leases have but do not use.
//!
//! Every operation that knows the current time and may change the holds, such as admission, top-up and renewal, first calls
//! `drop_lapsed`. When the last hold of a node ends, the node is removed. But a node that has made calls about leases of budget
//! is retained until its node lease lapses, with the highest lease number for each key.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

use crate::domain::{
    QuickMap,
    keys::KeyId,
    ledger::{
        ids::{LEASE_MS, NodeId},
        lease::RateUse,
        period::{Period, day_at},
    },
    money::NanoUsd,
};

/// The hold of one running request, or a lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Hold {
    pub(super) key: KeyId,
    pub(super) amount: NanoUsd,
    /// The time at which the request was admitted or the lease began, in milliseconds since the Unix epoch.
    pub(super) at_ms: i64,
    /// The additional state of a lease; `None` for the hold of a request.
    pub(super) lease: Option<LeaseHold>,
}

/// The additional state of a lease, which the hold of a request does not have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct LeaseHold {
    /// The number of requests that are running in the lease.
    pub(super) running: u64,
    /// The sequence number of the last call about the lease.
    pub(super) turn: u64,
    /// The requests and tokens that were admitted from the lease since the lease began.
    #[serde(default)]
    pub(super) used: RateUse,
    /// The requests and tokens that the lease was given since it began. They are at least `used`.
    #[serde(default)]
    pub(super) given: RateUse,
    /// The slots of the lease: the maximum number of requests that can run in it concurrently.
    #[serde(default)]
    pub(super) places: u64,
}

/// The rates and slots that leases have but do not use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LentRates {
    pub(super) rated: RateUse,
    pub(super) places: u64,
}

impl LeaseHold {
    /// Returns the rates and slots that the lease has but does not use.
    pub(super) const fn lent(self) -> LentRates {
        LentRates {
            rated: self.given.saturating_sub(self.used),
            places: self.places.saturating_sub(self.running),
        }
    }
}

impl LentRates {
    const fn saturating_add(self, other: Self) -> Self {
        Self {
            rated: self.rated.saturating_add(other.rated),
            places: self.places.saturating_add(other.places),
        }
    }

    const fn saturating_sub(self, other: Self) -> Self {
        Self {
            rated: self.rated.saturating_sub(other.rated),
            places: self.places.saturating_sub(other.places),
        }
    }
}

impl Hold {
    fn running(&self) -> u64 {
        self.lease.map_or(1, |lease| lease.running)
    }

    fn lent(&self) -> LentRates {
        self.lease.map(LeaseHold::lent).unwrap_or_default()
    }

    fn leased(&self) -> NanoUsd {
        if self.lease.is_some() {
            self.amount
        } else {
            NanoUsd::ZERO
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Holds {
    nodes: BTreeMap<NodeId, NodeHolds>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct NodeHolds {
    until_ms: i64,
    by_request: QuickMap<SmolStr, Hold>,
    held: NanoUsd,
    leased: NanoUsd,
    lent: LentRates,
    running: u64,
    keys: QuickMap<KeyId, KeyHolds>,
    /// For each key, the highest lease number in the node's calls.
    lease_numbers: QuickMap<KeyId, u64>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct KeyHolds {
    /// The number of the key's holds.
    holds: u64,
    running: u64,
    leased: NanoUsd,
    lent: LentRates,
    /// The held amounts by the day of admission, in days since the Unix epoch. Days without holds are left out.
    held: BTreeMap<i32, NanoUsd>,
}

impl Holds {
    pub(super) fn drop_lapsed(&mut self, now_ms: i64) {
        self.nodes.retain(|_, node| node.until_ms > now_ms);
    }

    pub(super) fn get(&self, node: &NodeId, request: &str) -> Option<&Hold> {
        self.nodes.get(node)?.by_request.get(request)
    }

    /// Adds the hold of a request that has no hold yet, and renews the node lease.
    pub(super) fn insert(&mut self, node: &NodeId, request: &str, hold: Hold, now_ms: i64) {
        let node = self.nodes.entry(node.clone()).or_default();
        node.until_ms = now_ms.saturating_add(LEASE_MS);
        node.count(&hold);
        node.by_request.insert(request.into(), hold);
    }

    /// Returns all holds, each with its node and its request id.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&NodeId, &SmolStr, &Hold)> {
        let nodes = self.nodes.iter();
        nodes.flat_map(|(id, node)| node.by_request.iter().map(move |(request, hold)| (id, request, hold)))
    }

    pub(super) fn enlarge(&mut self, node: &NodeId, request: &str, more: NanoUsd, now_ms: i64) {
        let Some(node) = self.nodes.get_mut(node) else { return };
        node.until_ms = now_ms.saturating_add(LEASE_MS);
        node.change(request, |hold| hold.amount = hold.amount.saturating_add(more));
    }

    /// Subtracts an amount from a lease, down to zero. Has no effect if the hold does not exist or is not a lease.
    pub(super) fn draw(&mut self, holder: &NodeId, lease: &str, amount: NanoUsd) {
        let Some(node) = self.nodes.get_mut(holder) else { return };
        node.change(lease, |hold| {
            if hold.lease.is_some() {
                hold.amount = hold.amount.saturating_sub(amount.clamp(NanoUsd::ZERO, hold.amount));
            }
        });
    }

    /// Records a call of `holder` about a lease that does not exist. Returns whether the lease can begin: its number must be
    /// higher than the numbers of all earlier leases of this holder and key.
    pub(super) fn register_lease(&mut self, holder: &NodeId, key: &KeyId, number: u64, now_ms: i64) -> bool {
        let known = self.nodes.get(holder).and_then(|node| node.lease_numbers.get(key));
        if known.is_some_and(|known| number <= *known) {
            return false;
        }
        let node = self.nodes.entry(holder.clone()).or_default();
        node.lease_numbers.insert(key.clone(), number);
        node.until_ms = now_ms.saturating_add(LEASE_MS);
        true
    }

    /// Replaces the state of a lease after a call about it.
    pub(super) fn update_lease(&mut self, holder: &NodeId, lease: &str, known: LeaseHold) {
        let Some(node) = self.nodes.get_mut(holder) else { return };
        node.change(lease, |hold| hold.lease = hold.lease.map(|_| known));
    }

    /// Ends a hold, if it exists.
    pub(super) fn end(&mut self, id: &NodeId, request: &str) {
        let Some(node) = self.nodes.get_mut(id) else { return };
        let Some(hold) = node.by_request.remove(request) else {
            return;
        };
        node.uncount(&hold);
        if node.by_request.is_empty() && node.lease_numbers.is_empty() {
            self.nodes.remove(id);
        }
    }

    pub(super) fn renew(&mut self, node: &NodeId, now_ms: i64) {
        if let Some(node) = self.nodes.get_mut(node) {
            node.until_ms = now_ms.saturating_add(LEASE_MS);
        }
    }

    pub(super) fn release(&mut self, node: &NodeId) {
        self.nodes.remove(node);
    }

    /// Returns the sum of all held amounts.
    pub(super) fn held(&self) -> NanoUsd {
        total(self.nodes.values().map(|node| node.held))
    }

    /// Returns the sum of the amounts of all leases.
    pub(super) fn leased(&self) -> NanoUsd {
        total(self.nodes.values().map(|node| node.leased))
    }

    /// Returns the sum of the amounts of a key's leases.
    pub(super) fn leased_key(&self, key: &KeyId) -> NanoUsd {
        let of_key = self.nodes.values().filter_map(|node| node.keys.get(key));
        total(of_key.map(|of_key| of_key.leased))
    }

    /// Returns the rates and slots that all leases have but do not use.
    pub(super) fn lent(&self) -> LentRates {
        self.nodes
            .values()
            .map(|node| node.lent)
            .fold(LentRates::default(), LentRates::saturating_add)
    }

    /// Returns the rates and slots that a key's leases have but do not use.
    pub(super) fn lent_key(&self, key: &KeyId) -> LentRates {
        let of_key = self.nodes.values().filter_map(|node| node.keys.get(key));
        of_key
            .map(|of_key| of_key.lent)
            .fold(LentRates::default(), LentRates::saturating_add)
    }

    /// Returns the sum of the amounts of a key's holds that began in a period.
    pub(super) fn held_in(&self, key: &KeyId, period: Period) -> NanoUsd {
        total(self.nodes.values().map(|node| node.held_in(key, period)))
    }

    /// Returns the number of running requests. `ended` is subtracted from the number of requests of the calling node `asking`.
    pub(super) fn running(&self, asking: &NodeId, ended: u64) -> u64 {
        self.sum_running(asking, ended, |node| node.running)
    }

    /// Returns the number of a key's running requests. `ended` is subtracted from the number of requests of the calling node
    /// `asking`.
    pub(super) fn running_key(&self, asking: &NodeId, key: &KeyId, ended: u64) -> u64 {
        self.sum_running(asking, ended, |node| node.running_key(key))
    }

    fn sum_running(&self, asking: &NodeId, ended: u64, of_node: impl Fn(&NodeHolds) -> u64) -> u64 {
        let counted = self.nodes.iter().map(|(id, node)| {
            let ended = if id == asking { ended } else { 0 };
            of_node(node).saturating_sub(ended)
        });
        counted.sum()
    }

    /// Returns the sum of the amounts of all holds that are live at `now_ms`, and the number of their running requests.
    pub(super) fn live_totals(&self, now_ms: i64) -> (NanoUsd, u64) {
        let live = || self.nodes.values().filter(|node| node.until_ms > now_ms);
        (
            total(live().map(|node| node.held)),
            live().map(|node| node.running).sum(),
        )
    }

    /// Returns the sum of the amounts of a key's holds that are live at `now_ms`, and the number of their running requests.
    pub(super) fn live_key_totals(&self, key: &KeyId, now_ms: i64) -> (NanoUsd, u64) {
        let live = || self.nodes.values().filter(|node| node.until_ms > now_ms);
        (
            total(live().map(|node| node.held_in(key, Period::All))),
            live().map(|node| node.running_key(key)).sum(),
        )
    }
}

impl NodeHolds {
    /// Changes an existing hold, and updates the sums.
    fn change(&mut self, request: &str, change: impl FnOnce(&mut Hold)) {
        let Some(mut hold) = self.by_request.remove(request) else {
            return;
        };
        self.uncount(&hold);
        change(&mut hold);
        self.count(&hold);
        self.by_request.insert(request.into(), hold);
    }

    fn count(&mut self, hold: &Hold) {
        self.held = self.held.saturating_add(hold.amount);
        self.leased = self.leased.saturating_add(hold.leased());
        self.lent = self.lent.saturating_add(hold.lent());
        self.running += hold.running();
        let of_key = self.keys.entry(hold.key.clone()).or_default();
        of_key.holds += 1;
        of_key.running += hold.running();
        of_key.lent = of_key.lent.saturating_add(hold.lent());
        of_key.leased = of_key.leased.saturating_add(hold.leased());
        of_key.add(hold.at_ms, hold.amount);
    }

    fn uncount(&mut self, hold: &Hold) {
        self.held = self.held.saturating_sub(hold.amount);
        self.leased = self.leased.saturating_sub(hold.leased());
        self.lent = self.lent.saturating_sub(hold.lent());
        self.running -= hold.running();
        let Some(of_key) = self.keys.get_mut(&hold.key) else {
            return;
        };
        of_key.holds -= 1;
        of_key.running -= hold.running();
        of_key.lent = of_key.lent.saturating_sub(hold.lent());
        of_key.leased = of_key.leased.saturating_sub(hold.leased());
        of_key.add(hold.at_ms, NanoUsd::from_nanos(-hold.amount.nanos()));
        if of_key.holds == 0 {
            self.keys.remove(&hold.key);
        }
    }

    fn running_key(&self, key: &KeyId) -> u64 {
        self.keys.get(key).map_or(0, |of_key| of_key.running)
    }

    fn held_in(&self, key: &KeyId, period: Period) -> NanoUsd {
        let days = self.keys.get(key).into_iter().flat_map(|of_key| &of_key.held);
        total(
            days.filter(|(day, _)| period.contains_day(**day))
                .map(|(_, held)| *held),
        )
    }
}

impl KeyHolds {
    fn add(&mut self, at_ms: i64, more: NanoUsd) {
        if more == NanoUsd::ZERO {
            return;
        }
        let day = day_at(at_ms);
        let held = self.held.entry(day).or_default();
        *held = held.saturating_add(more);
        if *held == NanoUsd::ZERO {
            self.held.remove(&day);
        }
    }
}

fn total(amounts: impl Iterator<Item = NanoUsd>) -> NanoUsd {
    amounts.fold(NanoUsd::ZERO, NanoUsd::saturating_add)
}

#[cfg(test)]
impl Holds {
    /// Returns the held amount and the number of running requests, added up from the individual holds.
    pub(super) fn counted(&self, now_ms: i64) -> (NanoUsd, u64) {
        let live = self.nodes.values().filter(|node| node.until_ms > now_ms);
        let holds: Vec<&Hold> = live.flat_map(|node| node.by_request.values()).collect();
        let running = holds.iter().map(|hold| hold.running()).sum();
        (total(holds.iter().map(|hold| hold.amount)), running)
    }
}
