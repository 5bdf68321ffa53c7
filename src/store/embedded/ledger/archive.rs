//! The embedded ledger in a backup.

use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::mpsc;

use super::{EmbeddedLedger, flush};
use crate::store::{
    StoreError,
    archive::{Archive, ArchiveItem},
    embedded::blocking,
    ledger::LedgerStore,
};

#[async_trait]
impl Archive for EmbeddedLedger {
    async fn dump(&self, to: mpsc::Sender<ArchiveItem>) -> Result<(), StoreError> {
        // The guard is dropped: other calls, and a handover that waits for them to end, do not wait for the client.
        let books = Arc::clone(&*self.ownership.here().await?);
        flush(&books, (self.now_ms)()).await?;
        blocking(move || books.file().dump(&to)).await
    }

    async fn is_empty(&self) -> Result<bool, StoreError> {
        Ok(self.accounts(None, 1).await?.is_empty())
    }

    /// Loaded items are visible when the ledger is opened again. Rows are not loaded: this store never keeps the log.
    async fn load(&self, items: &[ArchiveItem]) -> Result<(), StoreError> {
        let is_own = |item: &&ArchiveItem| {
            !matches!(
                item,
                ArchiveItem::Key { .. } | ArchiveItem::KeyGone { .. } | ArchiveItem::Row { .. }
            )
        };
        let items: Vec<ArchiveItem> = items.iter().filter(is_own).cloned().collect();
        if items.is_empty() {
            return Ok(());
        }
        self.run_blocking(move |books, _| books.file().load(&items)).await
    }
}
