//! The contract at its plainest: a store that is a list in memory, to compare the real ones with.

use std::sync::{Mutex, MutexGuard};

use async_trait::async_trait;
use tokio::sync::watch;

use crate::domain::key::{KeyId, KeyRecord};
use crate::domain::secret::KeyDigest;
use crate::store::{Changes, KeyChange, KeyStore, KeyView, LIST_KEYS_MAX, Lookup, StoreError};

/// A store without any engine.
pub(crate) struct ModelStore {
    state: Mutex<State>,
    nudge: watch::Sender<u64>,
}

#[derive(Default)]
struct State {
    keys: Vec<(KeyDigest, KeyView)>,
    changes: Vec<Vec<KeyDigest>>,
}

impl ModelStore {
    pub(crate) fn new() -> Self {
        Self {
            state: Mutex::default(),
            nudge: watch::channel(0).0,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    fn changed(&self, state: &mut State, digests: Vec<KeyDigest>) {
        state.changes.push(digests);
        self.nudge.send_replace(state.version());
    }

    fn replace(&self, id: &KeyId, change: impl Fn(&KeyRecord) -> KeyRecord) -> Result<KeyView, StoreError> {
        let mut state = self.state();
        let (digest, view) = state.held(id)?;
        let record = change(&view.record);
        if record == view.record {
            return Ok(view.clone());
        }
        view.record = record;
        let (digest, view) = (*digest, view.clone());
        self.changed(&mut state, vec![digest]);
        Ok(view)
    }
}

impl State {
    fn version(&self) -> u64 {
        self.changes.len() as u64
    }

    fn held(&mut self, id: &KeyId) -> Result<&mut (KeyDigest, KeyView), StoreError> {
        let mut keys = self.keys.iter_mut();
        keys.find(|(_, view)| view.record.id == *id).ok_or(StoreError::NotFound)
    }

    fn has_digest(&self, digest: &KeyDigest) -> bool {
        self.keys.iter().any(|(held, _)| held == digest)
    }
}

#[async_trait]
impl KeyStore for ModelStore {
    async fn find(&self, digest: &KeyDigest) -> Result<Lookup, StoreError> {
        let state = self.state();
        let held = state.keys.iter().find(|(held, _)| held == digest);
        Ok(Lookup {
            record: held.map(|(_, view)| view.record.clone()),
            version: state.version(),
        })
    }

    async fn create(&self, digest: &KeyDigest, record: &KeyRecord) -> Result<(), StoreError> {
        let mut state = self.state();
        if state.has_digest(digest) || state.held(&record.id).is_ok() {
            return Err(StoreError::Duplicate);
        }
        let view = KeyView {
            record: record.clone(),
            last_used: None,
        };
        state.keys.push((*digest, view));
        self.changed(&mut state, vec![*digest]);
        Ok(())
    }

    async fn by_id(&self, id: &KeyId) -> Result<Option<KeyView>, StoreError> {
        Ok(self.state().held(id).ok().map(|(_, view)| view.clone()))
    }

    async fn list(&self, after: Option<&KeyId>, limit: usize) -> Result<Vec<KeyView>, StoreError> {
        let mut state = self.state();
        if let Some(id) = after {
            state.held(id)?;
        }
        let mut all: Vec<KeyView> = state.keys.iter().map(|(_, view)| view.clone()).collect();
        all.sort_by_key(|view| (view.record.created_at, view.record.id.clone()));
        let skipped = match after {
            None => 0,
            Some(id) => all.iter().position(|view| view.record.id == *id).unwrap() + 1,
        };
        Ok(all.into_iter().skip(skipped).take(limit.min(LIST_KEYS_MAX)).collect())
    }

    async fn update(&self, id: &KeyId, change: &KeyChange) -> Result<KeyView, StoreError> {
        self.replace(id, |record| change.apply(record))
    }

    async fn rotate(&self, id: &KeyId, digest: &KeyDigest, hint: &str) -> Result<KeyView, StoreError> {
        let mut state = self.state();
        let taken = state.has_digest(digest);
        let (held, view) = state.held(id)?;
        if taken {
            return Err(StoreError::Duplicate);
        }
        view.record = view.record.rotated(hint);
        let (before, view) = (std::mem::replace(held, *digest), view.clone());
        self.changed(&mut state, vec![before, *digest]);
        Ok(view)
    }

    async fn revoke(&self, id: &KeyId, at: i64) -> Result<KeyView, StoreError> {
        self.replace(id, |record| record.revoked(at))
    }

    async fn delete(&self, id: &KeyId) -> Result<(), StoreError> {
        let mut state = self.state();
        let digest = state.held(id)?.0;
        state.keys.retain(|(held, _)| *held != digest);
        self.changed(&mut state, vec![digest]);
        Ok(())
    }

    async fn touch(&self, used: &[(KeyId, i64)]) -> Result<(), StoreError> {
        let mut state = self.state();
        for (id, at) in used {
            if let Ok((_, view)) = state.held(id) {
                view.last_used = view.last_used.max(Some(*at));
            }
        }
        Ok(())
    }

    async fn changes_since(&self, version: u64) -> Result<Changes, StoreError> {
        let state = self.state();
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
