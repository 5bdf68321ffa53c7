//! All keys of the embedded store, in memory. The store answers from them and checks changes against them.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::ops::Bound;

use crate::domain::keys::change::{ChangePrecondition, KeyChange};
use crate::domain::keys::secret::KeyDigest;
use crate::domain::keys::{KeyId, KeyRecord};
use crate::store::ledger::Feed;
use crate::store::{ChangeError, Changes, KeyLookup, KeyView, LIST_KEYS_MAX, StoreError};

/// A change that has been decided for one key, but has not been made yet. So the change can be written to the file before it is
/// applied to the memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum KeyMutation {
    /// The key is stored with these contents, as a new key or in place of the old contents.
    Put(Box<KeyView>),
    /// The key is removed, if it exists, and recorded as deleted.
    Remove(KeyId),
    /// Nothing changes, because the key already is as requested.
    Nothing(KeyId),
}

#[derive(Debug, Default)]
pub(super) struct KeyIndex {
    keys: HashMap<KeyId, KeyView>,
    by_digest: HashMap<KeyDigest, KeyId>,
    by_creation: BTreeSet<(i64, KeyId)>,
    /// The ids of deleted keys.
    gone: HashSet<KeyId>,
    feed: Feed,
}

impl KeyIndex {
    /// Builds the index from the keys in the file and the ids of deleted keys. The error is the id of a key with a digest that
    /// another key has too.
    pub(super) fn load(keys: impl IntoIterator<Item = KeyView>, gone: HashSet<KeyId>) -> Result<Self, KeyId> {
        let mut index = Self {
            gone,
            ..Self::default()
        };
        for held in keys {
            if held.digests().any(|digest| index.by_digest.contains_key(&digest)) {
                return Err(held.record.id);
            }
            index.put(held);
        }
        Ok(index)
    }

    pub(super) fn find(&self, digest: &KeyDigest) -> KeyLookup {
        let held = self.by_digest.get(digest).and_then(|id| self.keys.get(id));
        KeyLookup {
            record: held.map(|held| held.record.clone()),
            token: None,
            version: self.feed.version(),
        }
    }

    pub(super) fn view(&self, id: &KeyId) -> Option<KeyView> {
        self.keys.get(id).cloned()
    }

    pub(super) fn list(&self, after: Option<&KeyId>, limit: usize) -> Result<Vec<KeyView>, StoreError> {
        let start = match after {
            None => Bound::Unbounded,
            Some(id) => Bound::Excluded((self.existing(id)?.record.created_at, id.clone())),
        };
        let ids = self
            .by_creation
            .range((start, Bound::Unbounded))
            .take(limit.min(LIST_KEYS_MAX));
        Ok(ids.filter_map(|(_, id)| self.view(id)).collect())
    }

    pub(super) fn changes_since(&self, version: u64) -> Changes {
        self.feed.since(version)
    }

    pub(super) fn decide_create(&self, digest: &KeyDigest, record: &KeyRecord) -> Result<KeyMutation, StoreError> {
        let entry = KeyView {
            digest: *digest,
            record: record.clone(),
            last_used: None,
        };
        if record.revision == 0 && self.gone.contains(&record.id) {
            return Err(StoreError::Deleted);
        }
        if entry.digests().any(|digest| self.by_digest.contains_key(&digest)) || self.keys.contains_key(&record.id) {
            return Err(StoreError::Duplicate);
        }
        Ok(KeyMutation::Put(Box::new(entry)))
    }

    pub(super) fn decide_change(
        &self,
        id: &KeyId,
        change: &KeyChange,
        from: &ChangePrecondition,
    ) -> Result<KeyMutation, ChangeError> {
        let before = self.existing(id)?;
        Ok(self.decide_replace(before, before.apply_change(change, from)?)?)
    }

    pub(super) fn decide_delete(&self, id: &KeyId, from: &ChangePrecondition) -> Result<KeyMutation, ChangeError> {
        match self.keys.get(id) {
            None if self.gone.contains(id) => Ok(KeyMutation::Nothing(id.clone())),
            None => Err(StoreError::NotFound.into()),
            Some(held) => {
                held.check_precondition(from)?;
                Ok(KeyMutation::Remove(id.clone()))
            }
        }
    }

    pub(super) fn decide_heal(&self, digest: &KeyDigest, told: &KeyRecord) -> Result<KeyMutation, StoreError> {
        match self.keys.get(&told.id) {
            None if self.gone.contains(&told.id) => Ok(KeyMutation::Nothing(told.id.clone())),
            None => self.decide_create(digest, told),
            Some(before) => self.decide_replace(
                before,
                before.merged_with(digest, told).unwrap_or_else(|| before.clone()),
            ),
        }
    }

    /// Returns the mutation that replaces a key.
    fn decide_replace(&self, before: &KeyView, after: KeyView) -> Result<KeyMutation, StoreError> {
        let id = &before.record.id;
        let is_anothers = |digest| self.by_digest.get(&digest).is_some_and(|holder| holder != id);
        if after == *before {
            Ok(KeyMutation::Nothing(id.clone()))
        } else if after.digests().any(is_anothers) {
            Err(StoreError::Duplicate)
        } else {
            Ok(KeyMutation::Put(Box::new(after)))
        }
    }

    pub(super) fn decide_heal_gone(&self, id: &KeyId, revision: u64) -> KeyMutation {
        let is_done = match self.keys.get(id) {
            Some(held) => held.record.revision > revision,
            None => self.gone.contains(id),
        };
        if is_done {
            KeyMutation::Nothing(id.clone())
        } else {
            KeyMutation::Remove(id.clone())
        }
    }

    /// Applies a mutation that was decided from exactly this state. Returns the new version; `None` if nothing changed.
    pub(super) fn apply(&mut self, step: KeyMutation) -> Option<u64> {
        let (before, after) = match step {
            KeyMutation::Nothing(_) => return None,
            KeyMutation::Remove(id) => {
                let before = self.remove(&id);
                self.gone.insert(id);
                // The deletion of a key that did not exist need not be announced in the feed.
                before.as_ref()?;
                (before, Vec::new())
            }
            KeyMutation::Put(held) => {
                self.gone.remove(&held.record.id);
                let before = self.remove(&held.record.id);
                let after = held.digests().collect();
                self.put(*held);
                (before, after)
            }
        };
        let mut digests = Vec::new();
        for digest in before.iter().flat_map(KeyView::digests).chain(after) {
            if !digests.contains(&digest) {
                digests.push(digest);
            }
        }
        self.feed.push(digests);
        Some(self.feed.version())
    }

    /// Adds the digests of ended access tokens to the feed, and returns the new version.
    pub(super) fn announce_ended(&mut self, digests: Vec<KeyDigest>) -> u64 {
        self.feed.push(digests);
        self.feed.version()
    }

    /// Returns the uses to record: at most one for each existing key, and only if it is later than the recorded use.
    pub(super) fn later_uses(&self, used: &[(KeyId, i64)]) -> Vec<(KeyId, i64)> {
        let mut latest: HashMap<&KeyId, i64> = HashMap::new();
        for (id, at) in used {
            let noted = self.keys.get(id).map(|held| held.last_used.unwrap_or(i64::MIN));
            if noted.is_some_and(|noted| noted < *at) {
                latest
                    .entry(id)
                    .and_modify(|seen| *seen = (*seen).max(*at))
                    .or_insert(*at);
            }
        }
        latest.into_iter().map(|(id, at)| (id.clone(), at)).collect()
    }

    pub(super) fn record_uses(&mut self, later: Vec<(KeyId, i64)>) {
        for (id, at) in later {
            if let Some(held) = self.keys.get_mut(&id) {
                held.last_used = Some(at);
            }
        }
    }

    fn existing(&self, id: &KeyId) -> Result<&KeyView, StoreError> {
        self.keys.get(id).ok_or(StoreError::NotFound)
    }

    fn put(&mut self, held: KeyView) {
        let id = held.record.id.clone();
        for digest in held.digests() {
            self.by_digest.insert(digest, id.clone());
        }
        self.by_creation.insert((held.record.created_at, id.clone()));
        self.keys.insert(id, held);
    }

    fn remove(&mut self, id: &KeyId) -> Option<KeyView> {
        let held = self.keys.remove(id)?;
        for digest in held.digests() {
            self.by_digest.remove(&digest);
        }
        self.by_creation.remove(&(held.record.created_at, id.clone()));
        Some(held)
    }
}
