//! The embedded ledger in a backup.

use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::mpsc;

use super::EmbeddedLedger;
use crate::store::{
    StoreError,
    archive::{Archive, Item},
    embedded::blocking,
    ledger::LedgerStore,
};

#[async_trait]
impl Archive for EmbeddedLedger {
    async fn dump(&self, to: mpsc::Sender<Item>) -> Result<(), StoreError> {
        self.flush().await?;
        let books = Arc::clone(&self.books);
        blocking(move || books.file().dump(&to)).await
    }

    async fn is_empty(&self) -> Result<bool, StoreError> {
        Ok(self.accounts(None, 1).await?.is_empty())
    }

    /// What is loaded is there when the ledger is opened again.
    async fn load(&self, items: &[Item]) -> Result<(), StoreError> {
        let is_own = |item: &&Item| !matches!(item, Item::Key { .. } | Item::KeyGone { .. });
        let items: Vec<Item> = items.iter().filter(is_own).cloned().collect();
        if items.is_empty() {
            return Ok(());
        }
        let books = Arc::clone(&self.books);
        blocking(move || books.file().load(&items)).await
    }
}
