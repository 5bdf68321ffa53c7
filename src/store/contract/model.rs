//! The contract at its plainest: a store that is a list in memory, to compare the real ones with.

use async_trait::async_trait;
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::domain::keys::key::{KeyId, KeyRecord};
use crate::domain::keys::rotation::Rotation;
use crate::domain::keys::secret::KeyDigest;
use crate::store::{Changes, KeyChange, KeyHealer, KeyStore, KeyView, LIST_KEYS_MAX, Lookup, StoreError};

/// A store without any engine.
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

    /// A key was one and is another now: both are named by all their digests, each once.
    fn changed(&self, state: &mut ModelState, before: Option<&KeyView>, after: Option<&KeyView>) {
        let mut digests = Vec::new();
        for digest in before.into_iter().chain(after).flat_map(digests_of) {
            if !digests.contains(&digest) {
                digests.push(digest);
            }
        }
        state.changes.push(digests);
        self.nudge.send_replace(state.version());
    }

    fn replace(&self, id: &KeyId, change: impl Fn(&KeyRecord) -> KeyRecord) -> Result<KeyView, StoreError> {
        let mut state = self.state.lock();
        let view = state.held(id)?;
        let record = change(&view.record);
        if record == view.record {
            return Ok(view.clone());
        }
        let before = view.clone();
        view.record = record;
        let view = view.clone();
        self.changed(&mut state, Some(&before), Some(&view));
        Ok(view)
    }

    fn add(&self, state: &mut ModelState, digest: &KeyDigest, record: &KeyRecord) -> Result<(), StoreError> {
        let view = KeyView {
            digest: *digest,
            record: record.clone(),
            last_used: None,
        };
        let taken = digests_of(&view).any(|digest| state.holder(&digest).is_some());
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

    /// The key that has a text of this digest, now or before.
    fn holder(&self, digest: &KeyDigest) -> Option<&KeyView> {
        self.keys.iter().find(|view| digests_of(view).any(|one| one == *digest))
    }
}

fn digests_of(view: &KeyView) -> impl Iterator<Item = KeyDigest> {
    std::iter::once(view.digest).chain(view.record.former_digest())
}

#[async_trait]
impl KeyStore for ModelStore {
    async fn find(&self, digest: &KeyDigest) -> Result<Lookup, StoreError> {
        let state = self.state.lock();
        let held = state.holder(digest);
        Ok(Lookup {
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

    async fn update(&self, id: &KeyId, change: &KeyChange) -> Result<KeyView, StoreError> {
        self.replace(id, |record| change.apply(record))
    }

    async fn rotate(&self, id: &KeyId, rotation: &Rotation) -> Result<KeyView, StoreError> {
        let mut state = self.state.lock();
        let taken = state.holder(&rotation.digest).is_some();
        let view = state.held(id)?;
        if taken {
            return Err(StoreError::Duplicate);
        }
        let before = view.clone();
        view.record = view.record.rotated(&before.digest, rotation);
        view.digest = rotation.digest;
        let view = view.clone();
        self.changed(&mut state, Some(&before), Some(&view));
        Ok(view)
    }

    async fn end_overlap(&self, id: &KeyId) -> Result<KeyView, StoreError> {
        self.replace(id, KeyRecord::overlap_ended)
    }

    async fn revoke(&self, id: &KeyId, at: i64) -> Result<KeyView, StoreError> {
        self.replace(id, |record| record.revoked(at))
    }

    async fn delete(&self, id: &KeyId) -> Result<KeyView, StoreError> {
        let mut state = self.state.lock();
        state.held(id)?;
        self.remove(&mut state, id).ok_or(StoreError::NotFound)
    }

    async fn touch(&self, used: &[(KeyId, i64)]) -> Result<(), StoreError> {
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
        let told_digests = std::iter::once(*digest).chain(told.former_digest());
        let mut holders = told_digests.filter_map(|digest| state.holder(&digest));
        let taken = holders.any(|view| view.record.id != told.id);
        let view = state.held(&told.id)?;
        let Some(record) = view.record.healed(told) else {
            return Ok(());
        };
        let before = view.clone();
        if told.revision > before.record.revision {
            if taken {
                return Err(StoreError::Duplicate);
            }
            view.digest = *digest;
        }
        view.record = record;
        let view = view.clone();
        self.changed(&mut state, Some(&before), Some(&view));
        Ok(())
    }

    async fn heal_gone(&self, id: &KeyId, revision: u64) -> Result<(), StoreError> {
        let mut state = self.state.lock();
        if !state.held(id).is_ok_and(|view| view.record.revision > revision) {
            self.remove(&mut state, id);
        }
        Ok(())
    }
}
