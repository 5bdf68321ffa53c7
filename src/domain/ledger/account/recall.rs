//! When an account's leases are recalled.

use crate::domain::{keys::key::KeyId, quick_map::QuickMap};

/// When an account's leases are recalled: the mark, and the limits that are near.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Recall {
    /// Rises whenever all leases are recalled.
    pub(super) mark: u64,
    /// Since when the balance is near; `None` if it is not, or a lease has grown since.
    balance_near_ms: Option<i64>,
    /// Since when the quotas of keys are near, without keys of which a lease has grown since.
    quotas_near_ms: QuickMap<KeyId, i64>,
    /// Whether a rate or the slots of the account are near and no lease has begun since.
    is_rate_near: bool,
    /// The keys of which the same is true.
    rates_near: QuickMap<KeyId, ()>,
}

impl Recall {
    /// Since when a limit is near: the quota of a key, or the balance for `None`.
    pub(super) fn near_since(&self, quota_of: Option<&KeyId>) -> Option<i64> {
        match quota_of {
            Some(key) => self.quotas_near_ms.get(key).copied(),
            None => self.balance_near_ms,
        }
    }

    /// Records that a limit has become near.
    pub(super) fn set_near(&mut self, quota_of: Option<&KeyId>, now_ms: i64) {
        match quota_of {
            Some(key) => drop(self.quotas_near_ms.insert(key.clone(), now_ms)),
            None => self.balance_near_ms = Some(now_ms),
        }
    }

    /// Whether a rate or the slots are near: of a key, or of the account for `None`.
    pub(super) fn has_near_rate(&self, of: Option<&KeyId>) -> bool {
        of.map_or(self.is_rate_near, |key| self.rates_near.contains_key(key))
    }

    /// Records that a rate or the slots have become near.
    pub(super) fn set_rate_near(&mut self, of: Option<&KeyId>) {
        match of {
            Some(key) => drop(self.rates_near.insert(key.clone(), ())),
            None => self.is_rate_near = true,
        }
    }

    /// A lease of a key has begun: neither rates nor slots of the key and the account are near.
    pub(super) fn on_lease_began(&mut self, key: &KeyId) {
        self.is_rate_near = false;
        self.rates_near.remove(key);
    }

    /// A lease of a key has grown: neither the key's quota is near, nor the balance.
    pub(super) fn on_lease_grew(&mut self, key: &KeyId) {
        self.balance_near_ms = None;
        self.quotas_near_ms.remove(key);
    }
}
