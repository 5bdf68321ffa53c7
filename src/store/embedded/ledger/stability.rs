//! The hourly buckets of a single node: a table of the ledger's file. Shares are on disk when they are acknowledged.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::watch;

use super::EmbeddedLedger;
use crate::domain::{
    faults::stability::{Hour, ModelCounters, NodeHourCounters},
    ledger::NodeId,
};
use crate::store::{
    StoreError,
    embedded::{
        blocking,
        ownership::{FilesOwner, call::SuccessorCall},
    },
    stability::{HOURS_MAX, SHARES_MAX, StabilityStore},
};

#[cfg(test)]
mod tests;

#[async_trait]
impl StabilityStore for EmbeddedLedger {
    async fn put_shares(&self, node: &NodeId, shares: &[NodeHourCounters]) -> Result<(), StoreError> {
        let owner = self.ownership.owner().await;
        let FilesOwner::Here(books) = &*owner else {
            return owner.forward(&SuccessorCall::Tell(node.clone(), shares.to_vec())).await;
        };
        let shares: Vec<NodeHourCounters> = shares.iter().take(SHARES_MAX).cloned().collect();
        let (books, node) = (Arc::clone(books), node.clone());
        blocking(move || books.file().put_shares(&node, &shares)).await
    }

    async fn buckets(&self, first: Hour, last: Hour) -> Result<BTreeMap<Hour, ModelCounters>, StoreError> {
        let owner = self.ownership.owner().await;
        let FilesOwner::Here(books) = &*owner else {
            return owner.forward(&SuccessorCall::Buckets(first, last)).await;
        };
        let first = first.max(last.plus(1 - HOURS_MAX));
        let books = Arc::clone(books);
        blocking(move || books.file().buckets(first, last)).await
    }

    fn epochs(&self) -> watch::Receiver<u64> {
        self.epochs.subscribe()
    }
}
