//! Manages the generation, a random string with which a node recognises that a Redis still has its data. Also sends records of
//! keys again to a Redis that may have lost them, and backs up and restores keys and stability hours. During a restore the store
//! has no generation, so that no node treats an incomplete store as complete.

use async_trait::async_trait;
use tokio::sync::mpsc;

use crate::{
    domain::keys::{
        KeyId, KeyRecord,
        secret::{KeyDigest, random_base62},
    },
    store::{
        KeyHealer, KeyStore, LIST_KEYS_MAX, StoreError,
        archive::{Archive, ArchiveItem},
        redis::{ADMIN_BUDGET, CONFLICTS_MAX, RedisStore, contention_error, link::CallPolicy, scripts},
    },
};

const GENERATION_CHARS: usize = 22;

/// The treatment of data in a Redis without a generation, the random string that `weir store init` writes once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdoptPolicy {
    /// Refuse to set up the Redis, because part of the data was lost.
    Refuse,
    /// Use the keys as they are.
    Data,
}

/// The result of [`RedisStore::init`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InitOutcome {
    /// The store has been set up now.
    Made,
    /// The store was set up before.
    Already,
    /// There are keys but no generation; nothing was changed.
    HasData,
}

impl RedisStore {
    /// Sets up a new Redis; until then, every other call returns [`StoreError::Unavailable`]. A Redis that is already set up is
    /// not changed. [`crate::store::KeyStore::run`] must be running, and the connection must be established.
    pub async fn init(&self, adopt: AdoptPolicy) -> Result<InitOutcome, StoreError> {
        self.set_generation(&random_base62(GENERATION_CHARS, &mut rand::rng()), adopt)
            .await
    }

    /// Like [`Self::init`], but with the given generation, by which nodes recognise a Redis with restored data.
    pub(super) async fn set_generation(&self, word: &str, adopt: AdoptPolicy) -> Result<InitOutcome, StoreError> {
        let mut call = self.call_with_keys(&self.scripts.init);
        call.arg(word)
            .arg(if adopt == AdoptPolicy::Data { "adopt" } else { "" });
        let mut reply = self.call_alone(&call, CallPolicy::Write(ADMIN_BUDGET)).await?;
        match reply.text()?.as_str() {
            "made" => Ok(InitOutcome::Made),
            "there" => Ok(InitOutcome::Already),
            _ => Ok(InitOutcome::HasData),
        }
    }
}

#[async_trait]
impl KeyHealer for RedisStore {
    async fn heal(&self, digest: &KeyDigest, told: &KeyRecord) -> Result<(), StoreError> {
        for _ in 0..CONFLICTS_MAX {
            let is_done = match self.read(&told.id).await? {
                None => {
                    let call = self.creation_call(&self.scripts.heal, digest, told)?;
                    !self.call(&call, CallPolicy::Write(ADMIN_BUDGET)).await?.is_conflict()
                }
                Some((text, before)) => match before.merged_with(digest, told) {
                    None => true,
                    Some(after) => self.replace(&text, &before, &after).await?,
                },
            };
            if is_done {
                return Ok(());
            }
        }
        Err(contention_error(&told.id))
    }

    async fn heal_gone(&self, id: &KeyId, revision: u64) -> Result<(), StoreError> {
        for _ in 0..CONFLICTS_MAX {
            let is_done = match self.read(id).await? {
                Some((_, view)) if view.record.revision > revision => true,
                Some((text, _)) => self.remove_record(id, &text).await?,
                None => {
                    let mut call = self.prepare(&self.scripts.gone);
                    call.key(&self.gone_key).arg(id.as_str());
                    !self.call(&call, CallPolicy::Write(ADMIN_BUDGET)).await?.is_conflict()
                }
            };
            if is_done {
                return Ok(());
            }
        }
        Err(contention_error(id))
    }
}

/// Maximum number of keys that one script call restores. It is limited so that the call does not block the server for long.
const LOAD_KEYS_MAX: usize = 200;

impl RedisStore {
    /// Reads the generation; returns `None` if the store is not set up yet.
    ///
    /// # Errors
    /// Redis does not answer.
    pub async fn known_generation(&self) -> Result<Option<String>, StoreError> {
        let mut call = self.prepare(&self.scripts.view);
        call.arg("");
        let reply = self.call(&call, CallPolicy::Read(ADMIN_BUDGET)).await?;
        Ok(Some(reply.generation).filter(|generation| !generation.is_empty()))
    }

    /// Ends the restore of a backup, so that nodes accept the store. `generation` is the generation that nodes already know. If
    /// it is `None`, a new generation is created.
    ///
    /// # Errors
    /// Redis does not answer.
    pub async fn finish_restore(&self, generation: Option<&str>) -> Result<InitOutcome, StoreError> {
        match generation {
            Some(word) => self.set_generation(word, AdoptPolicy::Data).await,
            None => self.init(AdoptPolicy::Data).await,
        }
    }
}

#[async_trait]
impl Archive for RedisStore {
    async fn dump(&self, to: mpsc::Sender<ArchiveItem>) -> Result<(), StoreError> {
        let mut after: Option<KeyId> = None;
        loop {
            let page = match self.list(after.as_ref(), LIST_KEYS_MAX).await {
                Err(StoreError::NotFound) => {
                    return Err(StoreError::Unavailable(
                        "a key was deleted during the backup: start the backup again".to_owned(),
                    ));
                }
                page => page?,
            };
            let more = page.len() == LIST_KEYS_MAX;
            after = page.last().map(|view| view.record.id.clone());
            for view in page {
                let item = ArchiveItem::Key {
                    digest: view.digest,
                    record: Box::new(view.record),
                    last_used: view.last_used,
                };
                if to.send(item).await.is_err() {
                    return Ok(());
                }
            }
            if !more {
                break;
            }
        }
        let mut call = self.prepare(&self.scripts.gone_ids);
        call.key(&self.gone_key);
        for id in self.call(&call, CallPolicy::Read(ADMIN_BUDGET)).await?.texts() {
            let id = KeyId::parse(&id).map_err(|error| StoreError::Corrupt(error.to_string()))?;
            if to.send(ArchiveItem::KeyGone { id }).await.is_err() {
                return Ok(());
            }
        }
        self.dump_hours(&to).await
    }

    async fn is_empty(&self) -> Result<bool, StoreError> {
        let call = self.call_with_keys(&self.scripts.empty);
        Ok(self.call_alone(&call, CallPolicy::Read(ADMIN_BUDGET)).await?.text()? == "0")
    }

    async fn load(&self, items: &[ArchiveItem]) -> Result<(), StoreError> {
        self.load_hours(items).await?;
        for items in items.chunks(LOAD_KEYS_MAX) {
            let mut call = self.call_with_keys(&self.scripts.load);
            call.key(&self.gone_key).key(&self.former_key);
            let mut is_any = false;
            for item in items {
                match item {
                    ArchiveItem::Key {
                        digest,
                        record,
                        last_used,
                    } => {
                        let used = last_used.map(|at| at.to_string()).unwrap_or_default();
                        call.arg(digest.to_hex())
                            .arg(record.id.as_str())
                            .arg(scripts::record_text(record)?)
                            .arg(record.created_at)
                            .arg(used);
                    }
                    ArchiveItem::KeyGone { id } => {
                        call.arg("").arg(id.as_str()).arg("").arg("").arg("");
                    }
                    ArchiveItem::Account { .. }
                    | ArchiveItem::AccountKey { .. }
                    | ArchiveItem::DaySums { .. }
                    | ArchiveItem::Row { .. }
                    | ArchiveItem::Stability { .. } => {
                        continue;
                    }
                }
                is_any = true;
            }
            if !is_any {
                continue;
            }
            if self
                .call_alone(&call, CallPolicy::Write(ADMIN_BUDGET))
                .await?
                .is_conflict()
            {
                return Err(set_up_meanwhile());
            }
        }
        Ok(())
    }
}

pub(super) fn set_up_meanwhile() -> StoreError {
    StoreError::Unavailable(
        "the store was set up by another command during the restore: empty it and restore again".to_owned(),
    )
}
