//! When an account's leases are to come back: see [`super::leasing`] for what moves it.

use crate::domain::{keys::key::KeyId, quick_map::QuickMap};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Recall {
    /// Moves whenever all of them are to come back.
    pub(super) mark: u64,
    /// Since when the balance is near; `None` once a lease has grown.
    balance_near_ms: Option<i64>,
    /// Since when the quotas of keys are near; those of which a lease has grown are not.
    quotas_near_ms: QuickMap<KeyId, i64>,
    /// Whether a rate or the places of the account are near; not any more once a lease has begun.
    pace_is_near: bool,
    /// The same for keys.
    paces_near: QuickMap<KeyId, ()>,
}

impl Recall {
    /// Since when a limit is near: the quota of a key, or the balance.
    pub(super) fn near_since(&self, quota_of: Option<&KeyId>) -> Option<i64> {
        match quota_of {
            Some(key) => self.quotas_near_ms.get(key).copied(),
            None => self.balance_near_ms,
        }
    }

    /// A limit comes near.
    pub(super) fn comes_near(&mut self, quota_of: Option<&KeyId>, now_ms: i64) {
        match quota_of {
            Some(key) => drop(self.quotas_near_ms.insert(key.clone(), now_ms)),
            None => self.balance_near_ms = Some(now_ms),
        }
    }

    /// Whether a rate or the places are near: of a key, or of the account.
    pub(super) fn pace_is_near(&self, of: Option<&KeyId>) -> bool {
        of.map_or(self.pace_is_near, |key| self.paces_near.contains_key(key))
    }

    /// A rate or the places come near.
    pub(super) fn pace_comes_near(&mut self, of: Option<&KeyId>) {
        match of {
            Some(key) => drop(self.paces_near.insert(key.clone(), ())),
            None => self.pace_is_near = true,
        }
    }

    /// A lease of a key has begun: no rate and no places of it or of the account are near.
    pub(super) fn began(&mut self, key: &KeyId) {
        self.pace_is_near = false;
        self.paces_near.remove(key);
    }

    /// A lease of a key has grown: neither the key's quota is near, nor the balance.
    pub(super) fn grew(&mut self, key: &KeyId) {
        self.balance_near_ms = None;
        self.quotas_near_ms.remove(key);
    }
}
