//! The holds of an account, by node, with the sums that admission needs: nothing here walks through the holds.
//!
//! Kept for each node that has holds, and gone as a whole with its lease:
//!
//! - `until_ms`: the end of its lease; passed when `until_ms <= now`;
//! - request -> key, amount, time of admission;
//! - the sum of all amounts, and how many holds there are;
//! - by key: how many holds, and the sums of their amounts by the name of each of the four periods of their admission.
//!
//! `drop_lapsed` comes first wherever the time is known and something may change (admit, top-up, renew). A node
//! whose last hold ends is forgotten, with its lease.

use std::collections::BTreeMap;

use crate::domain::{
    keys::key::KeyId,
    ledger::{
        node::{LEASE_MS, NodeId},
        period::{ALL, Periods},
    },
    money::NanoUsd,
    quick_map::QuickMap,
};

/// What is held for one running request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Hold {
    pub(super) key: KeyId,
    pub(super) amount: NanoUsd,
    /// When it was admitted, in milliseconds since the Unix epoch.
    pub(super) at_ms: i64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Holds {
    nodes: BTreeMap<NodeId, NodeHolds>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct NodeHolds {
    until_ms: i64,
    by_request: QuickMap<String, Hold>,
    held: NanoUsd,
    keys: QuickMap<KeyId, KeyHolds>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct KeyHolds {
    running: u64,
    /// By the period's name. Those without anything held are not there.
    held: BTreeMap<String, NanoUsd>,
}

impl Holds {
    pub(super) fn drop_lapsed(&mut self, now_ms: i64) {
        self.nodes.retain(|_, node| node.until_ms > now_ms);
    }

    pub(super) fn get(&self, node: &NodeId, request: &str) -> Option<&Hold> {
        self.nodes.get(node)?.by_request.get(request)
    }

    /// Puts a hold of a request that has none.
    pub(super) fn put(&mut self, node: &NodeId, request: &str, hold: Hold, now_ms: i64) {
        let node = self.nodes.entry(node.clone()).or_default();
        node.until_ms = now_ms.saturating_add(LEASE_MS);
        let (key, amount, at_ms) = (hold.key.clone(), hold.amount, hold.at_ms);
        node.by_request.insert(request.to_owned(), hold);
        node.keys.entry(key.clone()).or_default().running += 1;
        node.add(&key, at_ms, amount);
    }

    /// All holds, with their nodes and requests.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&NodeId, &String, &Hold)> {
        let nodes = self.nodes.iter();
        nodes.flat_map(|(id, node)| node.by_request.iter().map(move |(request, hold)| (id, request, hold)))
    }

    pub(super) fn enlarge(&mut self, node: &NodeId, request: &str, more: NanoUsd, now_ms: i64) {
        let Some(node) = self.nodes.get_mut(node) else { return };
        let Some(hold) = node.by_request.get_mut(request) else {
            return;
        };
        hold.amount = hold.amount.saturating_add(more);
        let (key, at_ms) = (hold.key.clone(), hold.at_ms);
        node.until_ms = now_ms.saturating_add(LEASE_MS);
        node.add(&key, at_ms, more);
    }

    /// Ends a hold, if there is one.
    pub(super) fn end(&mut self, id: &NodeId, request: &str) {
        let Some(node) = self.nodes.get_mut(id) else { return };
        let Some(hold) = node.by_request.remove(request) else {
            return;
        };
        node.add(&hold.key, hold.at_ms, NanoUsd::from_nanos(-hold.amount.nanos()));
        if let Some(of_key) = node.keys.get_mut(&hold.key) {
            of_key.running -= 1;
            if of_key.running == 0 {
                node.keys.remove(&hold.key);
            }
        }
        if node.by_request.is_empty() {
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

    /// The sum of all holds.
    pub(super) fn held(&self) -> NanoUsd {
        total(self.nodes.values().map(|node| node.held))
    }

    /// What is held for a key by requests admitted in a period.
    pub(super) fn held_in(&self, key: &KeyId, period: &str) -> NanoUsd {
        total(self.nodes.values().map(|node| node.held_in(key, period)))
    }

    /// The number of running requests, without `ended` of the asking node.
    pub(super) fn running(&self, asking: &NodeId, ended: u64) -> u64 {
        self.count(asking, ended, NodeHolds::running)
    }

    /// The number of a key's running requests, without `ended` of the asking node.
    pub(super) fn running_key(&self, asking: &NodeId, key: &KeyId, ended: u64) -> u64 {
        self.count(asking, ended, |node| node.running_key(key))
    }

    fn count(&self, asking: &NodeId, ended: u64, of_node: impl Fn(&NodeHolds) -> u64) -> u64 {
        let counted = self.nodes.iter().map(|(id, node)| {
            let ended = if id == asking { ended } else { 0 };
            of_node(node).saturating_sub(ended)
        });
        counted.sum()
    }

    /// The sum and the number of the live holds at a time.
    pub(super) fn live(&self, now_ms: i64) -> (NanoUsd, u64) {
        let live = || self.nodes.values().filter(|node| node.until_ms > now_ms);
        (
            total(live().map(|node| node.held)),
            live().map(NodeHolds::running).sum(),
        )
    }

    /// The sum and the number of one key's live holds at a time.
    pub(super) fn live_key(&self, key: &KeyId, now_ms: i64) -> (NanoUsd, u64) {
        let live = || self.nodes.values().filter(|node| node.until_ms > now_ms);
        (
            total(live().map(|node| node.held_in(key, ALL))),
            live().map(|node| node.running_key(key)).sum(),
        )
    }
}

impl NodeHolds {
    fn add(&mut self, key: &KeyId, at_ms: i64, more: NanoUsd) {
        self.held = self.held.saturating_add(more);
        let Some(of_key) = self.keys.get_mut(key) else { return };
        let periods = Periods::at(at_ms);
        for period in [ALL, &periods.day, &periods.week, &periods.month] {
            let held = of_key.held.entry(period.to_owned()).or_default();
            *held = held.saturating_add(more);
            if *held == NanoUsd::ZERO {
                of_key.held.remove(period);
            }
        }
    }

    fn running(&self) -> u64 {
        u64::try_from(self.by_request.len()).unwrap_or(u64::MAX)
    }

    fn running_key(&self, key: &KeyId) -> u64 {
        self.keys.get(key).map_or(0, |of_key| of_key.running)
    }

    fn held_in(&self, key: &KeyId, period: &str) -> NanoUsd {
        let held = self.keys.get(key).and_then(|of_key| of_key.held.get(period));
        held.copied().unwrap_or(NanoUsd::ZERO)
    }
}

fn total(amounts: impl Iterator<Item = NanoUsd>) -> NanoUsd {
    amounts.fold(NanoUsd::ZERO, NanoUsd::saturating_add)
}

#[cfg(test)]
impl Holds {
    /// What is held and how many run, counted one by one.
    pub(super) fn counted(&self, now_ms: i64) -> (NanoUsd, u64) {
        let live = self.nodes.values().filter(|node| node.until_ms > now_ms);
        let holds: Vec<&Hold> = live.flat_map(|node| node.by_request.values()).collect();
        (total(holds.iter().map(|hold| hold.amount)), holds.len() as u64)
    }
}
