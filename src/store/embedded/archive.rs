//! Backup and restore of the embedded store's keys.

use std::{fs::File, io, path::Path, sync::Arc};

use async_trait::async_trait;
use redb::ReadableTable;
use tokio::sync::mpsc;

use super::{
    EmbeddedStore, blocking,
    file::{GONE, KEYS, StoreFile, UNFINISHED, USED, decode, encode},
    key_index::KeyMutation,
};
use crate::store::embedded::file::unavailable;
use crate::{
    domain::keys::KeyId,
    store::{
        KeyView, StoreError,
        archive::{Archive, ArchiveItem},
    },
};

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
    /// Sends the content of `snapshot`. Changes of the store do not have to wait until it is sent. Ends early if the receiver is
    /// dropped.
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
