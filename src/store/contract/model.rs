//! The reference model of a key store: a list in memory, with which the real stores are compared.

use async_trait::async_trait;
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::domain::keys::change::{ChangePrecondition, KeyChange};
use crate::domain::keys::secret::KeyDigest;
use crate::domain::keys::{KeyId, KeyRecord};
use crate::store::{ChangeError, Changes, KeyHealer, KeyLookup, KeyStore, KeyView, LIST_KEYS_MAX, StoreError};

/// A key store in memory, without an engine.
pub(crate) struct ModelStore {
    state: Mutex<ModelState>,
    nudge: watch::Sender<u64>,
}

#[derive(Default)]
struct ModelState {
    keys: Vec<KeyView>,
    gone: Vec<KeyId>,
    changes: Vec<Vec<KeyDigest>>,
}

impl ModelStore {
    pub(crate) fn new() -> Self {
        Self {
            state: Mutex::default(),
            nudge: watch::channel(0).0,
        }
    }

    /// Records that a key has changed from one state to another. The change contains all digests of both states, each once.
    fn changed(&self, state: &mut ModelState, before: Option<&KeyView>, after: Option<&KeyView>) {
        let mut digests = Vec::new();
        for digest in before.into_iter().chain(after).flat_map(KeyView::digests) {
            if !digests.contains(&digest) {
                digests.push(digest);
            }
        }
        state.changes.push(digests);
        self.nudge.send_replace(state.version());
    }

    fn replace(&self, state: &mut ModelState, before: &KeyView, after: KeyView) -> Result<KeyView, StoreError> {
        if after == *before {
            return Ok(after);
        }
        let is_anothers = |view: &KeyView| view.record.id != after.record.id;
        let taken = after
            .digests()
            .any(|digest| state.holder(&digest).is_some_and(is_anothers));
        if taken {
            return Err(StoreError::Duplicate);
        }
        *state.held(&after.record.id)? = after.clone();
        self.changed(state, Some(before), Some(&after));
        Ok(after)
    }

    fn add(&self, state: &mut ModelState, digest: &KeyDigest, record: &KeyRecord) -> Result<(), StoreError> {
        let view = KeyView {
            digest: *digest,
            record: record.clone(),
            last_used: None,
        };
        if record.revision == 0 && state.gone.contains(&record.id) {
            return Err(StoreError::Deleted);
        }
        let taken = view.digests().any(|digest| state.holder(&digest).is_some());
        if taken || state.held(&record.id).is_ok() {
            return Err(StoreError::Duplicate);
        }
        state.gone.retain(|gone| *gone != record.id);
        state.keys.push(view.clone());
        self.changed(state, None, Some(&view));
        Ok(())
    }

    fn remove(&self, state: &mut ModelState, id: &KeyId) -> Option<KeyView> {
        state.gone.push(id.clone());
        let at = state.keys.iter().position(|view| view.record.id == *id)?;
        let view = state.keys.remove(at);
        self.changed(state, Some(&view), None);
        Some(view)
    }
}

impl ModelState {
    fn version(&self) -> u64 {
        self.changes.len() as u64
    }

    fn held(&mut self, id: &KeyId) -> Result<&mut KeyView, StoreError> {
        let mut keys = self.keys.iter_mut();
        keys.find(|view| view.record.id == *id).ok_or(StoreError::NotFound)
    }

    /// Returns the key that has or had the secret with this digest.
    fn holder(&self, digest: &KeyDigest) -> Option<&KeyView> {
        self.keys.iter().find(|view| view.digests().any(|one| one == *digest))
    }
}

#[async_trait]
impl KeyStore for ModelStore {
    async fn find(&self, digest: &KeyDigest) -> Result<KeyLookup, StoreError> {
        let state = self.state.lock();
        let held = state.holder(digest);
        Ok(KeyLookup {
            record: held.map(|view| view.record.clone()),
            token: None,
            version: state.version(),
        })
    }

    async fn create(&self, digest: &KeyDigest, record: &KeyRecord) -> Result<(), StoreError> {
        self.add(&mut self.state.lock(), digest, record)
    }

    async fn by_id(&self, id: &KeyId) -> Result<Option<KeyView>, StoreError> {
        Ok(self.state.lock().held(id).ok().cloned())
    }

    async fn list(&self, after: Option<&KeyId>, limit: usize) -> Result<Vec<KeyView>, StoreError> {
        let mut state = self.state.lock();
        if let Some(id) = after {
            state.held(id)?;
        }
        let mut all: Vec<KeyView> = state.keys.clone();
        all.sort_by_key(|view| (view.record.created_at, view.record.id.clone()));
        let skipped = match after {
            None => 0,
            Some(id) => all.iter().position(|view| view.record.id == *id).unwrap() + 1,
        };
        Ok(all.into_iter().skip(skipped).take(limit.min(LIST_KEYS_MAX)).collect())
    }

    async fn change(&self, id: &KeyId, change: &KeyChange, from: &ChangePrecondition) -> Result<KeyView, ChangeError> {
        let mut state = self.state.lock();
        let before = state.held(id)?.clone();
        let after = before.apply_change(change, from)?;
        Ok(self.replace(&mut state, &before, after)?)
    }

    async fn delete(&self, id: &KeyId, from: &ChangePrecondition) -> Result<Option<KeyView>, ChangeError> {
        let mut state = self.state.lock();
        if state.gone.contains(id) {
            return Ok(None);
        }
        state.held(id)?.check_precondition(from)?;
        Ok(self.remove(&mut state, id))
    }

    async fn record_uses(&self, used: &[(KeyId, i64)]) -> Result<(), StoreError> {
        let mut state = self.state.lock();
        for (id, at) in used {
            if let Ok(view) = state.held(id) {
                view.last_used = view.last_used.max(Some(*at));
            }
        }
        Ok(())
    }

    async fn changes_since(&self, version: u64) -> Result<Changes, StoreError> {
        let state = self.state.lock();
        let behind = state.changes.get(usize::try_from(version).unwrap()..);
        Ok(Changes {
            version: state.version(),
            digests: behind.map(<[_]>::concat),
        })
    }

    fn nudges(&self) -> watch::Receiver<u64> {
        self.nudge.subscribe()
    }
}

#[async_trait]
impl KeyHealer for ModelStore {
    async fn heal(&self, digest: &KeyDigest, told: &KeyRecord) -> Result<(), StoreError> {
        let mut state = self.state.lock();
        if state.held(&told.id).is_err() {
            let is_gone = state.gone.contains(&told.id);
            return if is_gone {
                Ok(())
            } else {
                self.add(&mut state, digest, told)
            };
        }
        let before = state.held(&told.id)?.clone();
        let after = before.merged_with(digest, told).unwrap_or_else(|| before.clone());
        self.replace(&mut state, &before, after).map(drop)
    }

    async fn heal_gone(&self, id: &KeyId, revision: u64) -> Result<(), StoreError> {
        let mut state = self.state.lock();
        if !state.held(id).is_ok_and(|view| view.record.revision > revision) {
            self.remove(&mut state, id);
        }
        Ok(())
    }
}
