//! The store of a single node, which has all keys in memory and in one file. Also its backup and restore.
//!
//! A change is decided from the state in memory, committed to the file, and only then applied to memory and acknowledged. All of
//! this happens under one lock and on a blocking thread. So acknowledged changes survive `kill -9`, no reader sees a change that
//! could still be lost, and the file and the memory agree even if a caller is dropped midway.

mod file;
pub(crate) mod handover;
mod key_index;
pub(crate) mod ledger;
pub(crate) mod ownership;
mod sign_ins;
#[cfg(test)]
mod tests;

use std::{fs::File, io, path::Path, sync::Arc};

use async_trait::async_trait;
use parking_lot::{Mutex, RwLock};
use redb::ReadableTable;
use tokio::sync::{mpsc, watch};

use crate::{
    domain::{
        keys::{
            KeyId, KeyRecord,
            change::{ChangePrecondition, KeyChange},
            secret::KeyDigest,
        },
        wire::{provider_state::StateKey, session_hint::ServedBy},
    },
    edges::clock,
    store::{
        ChangeError, Changes, KeyHealer, KeyLookup, KeyStore, KeyView, StoreError, StoreOpenError,
        archive::{Archive, ArchiveItem},
        embedded::{
            file::{GONE, KEYS, StoreFile, UNFINISHED, USED, decode, encode, unavailable},
            key_index::{KeyIndex, KeyMutation},
            ownership::{FilesOwner, Ownership, SuccessorCall},
            sign_ins::DocumentTable,
        },
        sessions::{self, EMBEDDED_SESSIONS_MAX, SESSION_LIFETIME, SessionStore},
    },
};

/// The keys, sign-ins and sessions of the embedded store. Opening it locks its file, which only one process can use at a time.
pub(crate) struct EmbeddedStore {
    ownership: Ownership<StoreInner>,
    /// Makes caches read the feed. This sender outlives the open file, because the file can be closed and opened again.
    nudge: watch::Sender<u64>,
}

/// The open file, and the parts of its content that are also in memory.
struct StoreInner {
    index: RwLock<KeyIndex>,
    documents: RwLock<DocumentTable>,
    /// The file. Changes are decided, committed and applied under its lock, one after another.
    file: Mutex<StoreFile>,
    nudge: watch::Sender<u64>,
}

impl EmbeddedStore {
    /// Opens the store in `folder`, creating the folder if necessary. Blocks while it reads the file, so call it before serving.
    pub(crate) fn open(folder: &Path) -> Result<Self, StoreOpenError> {
        let nudge = watch::channel(0).0;
        let inner = StoreInner::open(folder, nudge.clone())?;
        Ok(Self {
            ownership: Ownership::new(inner),
            nudge,
        })
    }

    /// Runs `work` with the file on a blocking thread. The work is completed even if the caller stops waiting.
    async fn run_blocking<T: Send + 'static, E: From<StoreError> + Send + 'static>(
        &self,
        work: impl FnOnce(&StoreInner) -> Result<T, E> + Send + 'static,
    ) -> Result<T, E> {
        let here = self.ownership.here().await?;
        let inner = Arc::clone(&here);
        blocking(move || work(&inner)).await
    }

    /// Decides, commits and applies a change of one key. Returns the key after the change, or its last state if the key was
    /// removed.
    async fn mutate<E: From<StoreError> + Send + 'static>(
        &self,
        id: &KeyId,
        decide: impl FnOnce(&KeyIndex) -> Result<KeyMutation, E> + Send + 'static,
    ) -> Result<Option<KeyView>, E> {
        let id = id.clone();
        self.run_blocking(move |inner| inner.mutate(&id, decide)).await
    }
}

impl StoreInner {
    fn open(folder: &Path, nudge: watch::Sender<u64>) -> Result<Self, StoreOpenError> {
        if folder.join(UNFINISHED).exists() {
            return Err(StoreOpenError::Unfinished(folder.to_owned()));
        }
        let (file, keys, gone) = StoreFile::open(folder)?;
        let index = KeyIndex::load(keys, gone).map_err(|id| StoreOpenError::Corrupt {
            path: folder.to_owned(),
            reason: format!("key {id} has the same digest as another key"),
        })?;
        let documents = DocumentTable::load(&file).map_err(|reason| StoreOpenError::Corrupt {
            path: folder.to_owned(),
            reason,
        })?;
        Ok(Self {
            index: RwLock::new(index),
            documents: RwLock::new(documents),
            file: Mutex::new(file),
            nudge,
        })
    }

    /// Closes the file, so that another process can open it. Calls that still use it get [`StoreError::Unavailable`].
    fn close(&self) {
        self.file.lock().close();
    }

    /// Decides, commits and applies a change of one key. Returns the key after the change, or its last state if the key was
    /// removed.
    fn mutate<E: From<StoreError>>(
        &self,
        id: &KeyId,
        decide: impl FnOnce(&KeyIndex) -> Result<KeyMutation, E>,
    ) -> Result<Option<KeyView>, E> {
        let file = self.file.lock();
        let step = decide(&self.index.read())?;
        if !matches!(step, KeyMutation::Nothing(_)) {
            file.commit(&step)?;
        }
        let mut index = self.index.write();
        let removed = match &step {
            KeyMutation::Remove(id) => index.view(id),
            KeyMutation::Put(_) | KeyMutation::Nothing(_) => None,
        };
        if let Some(version) = index.apply(step) {
            self.nudge.send_replace(version);
        }
        Ok(removed.or_else(|| index.view(id)))
    }

    fn record_uses(&self, used: &[(KeyId, i64)]) -> Result<(), StoreError> {
        let file = self.file.lock();
        let later = self.index.read().later_uses(used);
        if !later.is_empty() {
            file.commit_uses(&later)?;
            self.index.write().record_uses(later);
        }
        Ok(())
    }
}

#[async_trait]
impl KeyStore for EmbeddedStore {
    async fn find(&self, digest: &KeyDigest) -> Result<KeyLookup, StoreError> {
        let owner = self.ownership.owner().await;
        let FilesOwner::Here(inner) = &*owner else {
            return owner.forward(&SuccessorCall::Find(*digest)).await;
        };
        let mut found = inner.index.read().find(digest);
        if found.record.is_none() {
            let documents = inner.documents.read();
            let text = documents.text(digest, clock::unix_seconds());
            // A document whose text is not a grant is another kind of sign-in document.
            found.token = text.and_then(|text| serde_json::from_str(text).ok());
        }
        Ok(found)
    }

    async fn create(&self, digest: &KeyDigest, record: &KeyRecord) -> Result<(), StoreError> {
        let (digest, id, record) = (*digest, record.id.clone(), record.clone());
        self.mutate(&id, move |index| index.decide_create(&digest, &record))
            .await
            .map(drop)
    }

    async fn by_id(&self, id: &KeyId) -> Result<Option<KeyView>, StoreError> {
        let here = self.ownership.here().await?;
        Ok(here.index.read().view(id))
    }

    async fn list(&self, after: Option<&KeyId>, limit: usize) -> Result<Vec<KeyView>, StoreError> {
        let here = self.ownership.here().await?;
        here.index.read().list(after, limit)
    }

    async fn change(&self, id: &KeyId, change: &KeyChange, from: &ChangePrecondition) -> Result<KeyView, ChangeError> {
        let (wanted, change, from) = (id.clone(), change.clone(), *from);
        let changed = self.mutate(id, move |index| index.decide_change(&wanted, &change, &from));
        changed.await?.ok_or(ChangeError::Store(StoreError::NotFound))
    }

    async fn delete(&self, id: &KeyId, from: &ChangePrecondition) -> Result<Option<KeyView>, ChangeError> {
        let (wanted, from) = (id.clone(), *from);
        self.mutate(id, move |index| index.decide_delete(&wanted, &from)).await
    }

    async fn record_uses(&self, used: &[(KeyId, i64)]) -> Result<(), StoreError> {
        let owner = self.ownership.owner().await;
        let FilesOwner::Here(inner) = &*owner else {
            return owner.forward(&SuccessorCall::Touch(used.to_vec())).await;
        };
        let (inner, used) = (Arc::clone(inner), used.to_vec());
        blocking(move || inner.record_uses(&used)).await
    }

    async fn changes_since(&self, version: u64) -> Result<Changes, StoreError> {
        let owner = self.ownership.owner().await;
        let FilesOwner::Here(inner) = &*owner else {
            return owner.forward(&SuccessorCall::ChangesSince(version)).await;
        };
        Ok(inner.index.read().changes_since(version))
    }

    fn nudges(&self) -> watch::Receiver<u64> {
        self.nudge.subscribe()
    }

    fn nudges_all(&self) -> bool {
        // This is false while it is being decided which process owns the files.
        self.ownership.here_now().is_some()
    }
}

#[async_trait]
impl KeyHealer for EmbeddedStore {
    async fn heal(&self, digest: &KeyDigest, record: &KeyRecord) -> Result<(), StoreError> {
        let (digest, id, record) = (*digest, record.id.clone(), record.clone());
        self.mutate(&id, move |index| index.decide_heal(&digest, &record))
            .await
            .map(drop)
    }

    async fn heal_gone(&self, id: &KeyId, revision: u64) -> Result<(), StoreError> {
        let wanted = id.clone();
        self.mutate(id, move |index| Ok(index.decide_heal_gone(&wanted, revision)))
            .await
            .map(drop)
    }
}

#[async_trait]
impl SessionStore for EmbeddedStore {
    async fn recall(&self, states: &[StateKey]) -> Result<Vec<Option<ServedBy>>, StoreError> {
        let owner = self.ownership.owner().await;
        let FilesOwner::Here(inner) = &*owner else {
            return owner.forward(&SuccessorCall::Recall(states.to_vec())).await;
        };
        let (inner, now) = (Arc::clone(inner), clock::unix_seconds());
        let states = states.to_vec();
        let texts = blocking(move || {
            let file = inner.file.lock();
            file.sessions(states.iter().map(|state| state.0.as_slice()), now)
        });
        let texts = texts.await?.into_iter();
        Ok(texts.map(|text| sessions::from_text(&text?)).collect())
    }

    async fn remember(&self, served: &[(StateKey, ServedBy)], now: i64) -> Result<(), StoreError> {
        let owner = self.ownership.owner().await;
        let FilesOwner::Here(inner) = &*owner else {
            return owner.forward(&SuccessorCall::Remember(served.to_vec(), now)).await;
        };
        if served.is_empty() {
            return Ok(());
        }
        let inner = Arc::clone(inner);
        let served: Vec<(StateKey, String)> = served
            .iter()
            .map(|(state, served_by)| (*state, sessions::to_text(served_by)))
            .collect();
        let until = now.saturating_add_unsigned(SESSION_LIFETIME.as_secs());
        blocking(move || {
            let file = inner.file.lock();
            file.commit_sessions(&served, now, until, EMBEDDED_SESSIONS_MAX)
        })
        .await
    }
}

async fn blocking<T: Send + 'static, E: From<StoreError> + Send + 'static>(
    work: impl FnOnce() -> Result<T, E> + Send + 'static,
) -> Result<T, E> {
    let answer = tokio::task::spawn_blocking(work).await;
    answer.unwrap_or_else(|error| {
        let why = format!("a thread of the store stopped before its work was done: {error}");
        Err(StoreError::Unavailable(why).into())
    })
}

impl EmbeddedStore {
    /// Marks the store as being restored. Until [`EmbeddedStore::finish_restore`], it cannot be opened again.
    ///
    /// # Errors
    /// The mark cannot be written to the folder.
    pub(crate) fn begin_restore(folder: &Path) -> io::Result<()> {
        File::create(folder.join(UNFINISHED))?.sync_all()?;
        File::open(folder)?.sync_all()
    }

    /// Removes the mark of [`EmbeddedStore::begin_restore`].
    ///
    /// # Errors
    /// The mark cannot be removed from the folder.
    pub(crate) fn finish_restore(folder: &Path) -> io::Result<()> {
        std::fs::remove_file(folder.join(UNFINISHED))?;
        File::open(folder)?.sync_all()
    }
}

impl StoreFile {
    /// Sends the content of `snapshot`. The store can be changed in the meantime. Ends early if the receiver is dropped.
    fn dump(snapshot: &redb::ReadTransaction, to: &mpsc::Sender<ArchiveItem>) -> Result<(), String> {
        let failed = |error: redb::Error| error.to_string();
        let keys = snapshot.open_table(KEYS).map_err(|error| failed(error.into()))?;
        let used = snapshot.open_table(USED).map_err(|error| failed(error.into()))?;
        for entry in keys.iter().map_err(|error| failed(error.into()))? {
            let (id, stored) = entry.map_err(|error| failed(error.into()))?;
            let last_used = used.get(id.value()).map_err(|error| failed(error.into()))?;
            let held = decode(id.value(), stored.value(), last_used.map(|at| at.value()))?;
            let item = ArchiveItem::Key {
                digest: held.digest,
                record: Box::new(held.record),
                last_used: held.last_used,
            };
            if to.blocking_send(item).is_err() {
                return Ok(());
            }
        }
        let gone = snapshot.open_table(GONE).map_err(|error| failed(error.into()))?;
        for entry in gone.iter().map_err(|error| failed(error.into()))? {
            let (id, _) = entry.map_err(|error| failed(error.into()))?;
            let id = KeyId::parse(id.value()).map_err(|error| error.to_string())?;
            if to.blocking_send(ArchiveItem::KeyGone { id }).is_err() {
                return Ok(());
            }
        }
        Ok(())
    }

    fn commit_all(&self, held: &[KeyView], gone: &[KeyId]) -> Result<(), StoreError> {
        let write = || -> Result<(), redb::Error> {
            let transaction = self.begin_write()?;
            {
                let mut keys = transaction.open_table(KEYS)?;
                let mut used = transaction.open_table(USED)?;
                let mut deleted = transaction.open_table(GONE)?;
                for one in held {
                    keys.insert(one.record.id.as_str(), encode(one)?.as_slice())?;
                    if let Some(at) = one.last_used {
                        used.insert(one.record.id.as_str(), at)?;
                    }
                }
                for id in gone {
                    deleted.insert(id.as_str(), ())?;
                }
            }
            Ok(transaction.commit()?)
        };
        write().map_err(unavailable)
    }
}

#[async_trait]
impl Archive for EmbeddedStore {
    async fn dump(&self, to: mpsc::Sender<ArchiveItem>) -> Result<(), StoreError> {
        // The guard is dropped, so that other calls, and a handover that waits for them, need not wait for the backup's client.
        let inner = Arc::clone(&*self.ownership.here().await?);
        blocking(move || {
            let snapshot = inner.file.lock().snapshot().map_err(unavailable)?;
            StoreFile::dump(&snapshot, &to).map_err(StoreError::Corrupt)
        })
        .await
    }

    async fn is_empty(&self) -> Result<bool, StoreError> {
        let here = self.ownership.here().await?;
        Ok(here.index.read().list(None, 1)?.is_empty())
    }

    async fn load(&self, items: &[ArchiveItem]) -> Result<(), StoreError> {
        let (mut held, mut gone) = (Vec::new(), Vec::new());
        for item in items {
            match item {
                ArchiveItem::Key {
                    digest,
                    record,
                    last_used,
                } => held.push(KeyView {
                    digest: *digest,
                    record: (**record).clone(),
                    last_used: *last_used,
                }),
                ArchiveItem::KeyGone { id } => gone.push(id.clone()),
                ArchiveItem::Account { .. }
                | ArchiveItem::AccountKey { .. }
                | ArchiveItem::DaySums { .. }
                | ArchiveItem::Row { .. }
                | ArchiveItem::Stability { .. } => {}
            }
        }
        if held.is_empty() && gone.is_empty() {
            return Ok(());
        }
        self.run_blocking(move |inner| {
            let file = inner.file.lock();
            file.commit_all(&held, &gone)?;
            let mut index = inner.index.write();
            let steps = held
                .into_iter()
                .map(|held| KeyMutation::Put(Box::new(held)))
                .chain(gone.into_iter().map(KeyMutation::Remove));
            for step in steps {
                index.apply(step);
            }
            Ok(())
        })
        .await
    }
}
