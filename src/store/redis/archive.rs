//! Backup and restore of the Redis store's keys and stability hours. During a restore the store has no generation, so that no
//! node treats an incomplete store as complete.

use async_trait::async_trait;
use tokio::sync::mpsc;

use super::{ADMIN_BUDGET, AdoptPolicy, InitOutcome, RedisStore, link::CallPolicy};
use crate::store::redis::scripts;
use crate::{
    domain::keys::KeyId,
    store::{
        KeyStore, LIST_KEYS_MAX, StoreError,
        archive::{Archive, ArchiveItem},
    },
};

/// Maximum number of keys that one script restores, so that it does not block the server for long.
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

    /// Ends the restore of a backup, so that nodes accept the store. `generation` is the one that nodes knew; `None` for a new
    /// one.
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
