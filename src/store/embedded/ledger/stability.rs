//! The hourly buckets of a single node: a table of the ledger's file. What is told is on the disk when it is acknowledged.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::watch;

use super::EmbeddedLedger;
use crate::domain::{
    faults::stability::{Bucket, Hour, Share},
    ledger::NodeId,
};
use crate::store::{
    StoreError,
    embedded::{
        blocking,
        ownership::{Owner, call::Call},
    },
    stability::{HOURS_MAX, SHARES_MAX, StabilityStore},
};

#[cfg(test)]
mod tests;

#[async_trait]
impl StabilityStore for EmbeddedLedger {
    async fn tell(&self, node: &NodeId, shares: &[Share]) -> Result<(), StoreError> {
        let owner = self.ownership.owner().await;
        let Owner::Here(books) = &*owner else {
            return owner.ask(&Call::Tell(node.clone(), shares.to_vec())).await;
        };
        let shares: Vec<Share> = shares.iter().take(SHARES_MAX).cloned().collect();
        let (books, node) = (Arc::clone(books), node.clone());
        blocking(move || books.file().tell(&node, &shares)).await
    }

    async fn buckets(&self, first: Hour, last: Hour) -> Result<BTreeMap<Hour, Bucket>, StoreError> {
        let owner = self.ownership.owner().await;
        let Owner::Here(books) = &*owner else {
            return owner.ask(&Call::Buckets(first, last)).await;
        };
        let first = first.max(last.plus(1 - HOURS_MAX));
        let books = Arc::clone(books);
        blocking(move || books.file().buckets(first, last)).await
    }

    fn epochs(&self) -> watch::Receiver<u64> {
        self.epochs.subscribe()
    }
}
