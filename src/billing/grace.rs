//! What keys may commit while the store cannot be asked: a fixed amount each, on this node.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

use crate::domain::{key::KeyId, money::NanoUsd};

/// The most keys that are followed at one time; further ones get no grace.
const KEYS_MAX: usize = 100_000;

/// See the module.
#[derive(Debug)]
pub struct Grace {
    limit: NanoUsd,
    committed: Mutex<HashMap<KeyId, NanoUsd>>,
}

impl Grace {
    /// Each key may commit `limit`.
    pub fn new(limit: NanoUsd) -> Self {
        Self {
            limit,
            committed: Mutex::default(),
        }
    }

    /// Commits `estimate`, or what is left of the grace if that is less; `None` when nothing is left.
    pub fn commit(&self, key: &KeyId, estimate: NanoUsd) -> Option<NanoUsd> {
        let mut committed = self.committed.lock().unwrap_or_else(PoisonError::into_inner);
        if !committed.contains_key(key) && committed.len() >= KEYS_MAX {
            return None;
        }
        let used = committed.get(key).copied().unwrap_or_default();
        let left = self.limit.saturating_sub(used);
        if left <= NanoUsd::ZERO {
            return None;
        }
        let hold = estimate.min(left);
        committed.insert(key.clone(), used.saturating_add(hold));
        Some(hold)
    }

    /// The store answers for this key again: it counts what was committed.
    pub fn end(&self, key: &KeyId) {
        let mut committed = self.committed.lock().unwrap_or_else(PoisonError::into_inner);
        if !committed.is_empty() {
            committed.remove(key);
        }
    }

    /// What all keys together have committed.
    pub fn committed(&self) -> NanoUsd {
        let committed = self.committed.lock().unwrap_or_else(PoisonError::into_inner);
        committed
            .values()
            .fold(NanoUsd::ZERO, |sum, one| sum.saturating_add(*one))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_commits_no_more_than_its_grace() {
        let grace = Grace::new(NanoUsd::from_nanos(10));
        let key = KeyId::parse("key_0000000000000001").unwrap();
        let other = KeyId::parse("key_0000000000000002").unwrap();
        let amount = NanoUsd::from_nanos;
        assert_eq!(grace.commit(&key, amount(7)), Some(amount(7)));
        assert_eq!(grace.commit(&key, amount(7)), Some(amount(3)));
        assert_eq!(grace.commit(&key, amount(1)), None);
        assert_eq!(grace.commit(&other, amount(4)), Some(amount(4)));
        assert_eq!(grace.committed(), amount(14));
        grace.end(&key);
        assert_eq!(grace.commit(&key, amount(1)), Some(amount(1)));
    }

    #[test]
    fn no_grace_admits_nothing() {
        let key = KeyId::parse("key_0000000000000001").unwrap();
        assert_eq!(Grace::new(NanoUsd::ZERO).commit(&key, NanoUsd::ZERO), None);
    }
}
