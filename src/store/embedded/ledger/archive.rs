//! The embedded ledger in a backup.

use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::mpsc;

use super::{EmbeddedLedger, flush};
use crate::store::{
    StoreError,
    archive::{Archive, Item},
    embedded::blocking,
    ledger::LedgerStore,
};

#[async_trait]
impl Archive for EmbeddedLedger {
    async fn dump(&self, to: mpsc::Sender<Item>) -> Result<(), StoreError> {
        // Other calls, and who waits for them to end, do not wait for the client.
        let books = Arc::clone(&*self.ownership.here().await?);
        flush(&books, (self.now_ms)()).await?;
        blocking(move || books.file().dump(&to)).await
    }

    async fn is_empty(&self) -> Result<bool, StoreError> {
        Ok(self.accounts(None, 1).await?.is_empty())
    }

    /// What is loaded is there when the ledger is opened again. Rows are not loaded: this store is never their home.
    async fn load(&self, items: &[Item]) -> Result<(), StoreError> {
        let is_own = |item: &&Item| !matches!(item, Item::Key { .. } | Item::KeyGone { .. } | Item::Row { .. });
        let items: Vec<Item> = items.iter().filter(is_own).cloned().collect();
        if items.is_empty() {
            return Ok(());
        }
        self.work(move |books, _| books.file().load(&items)).await
    }
}
