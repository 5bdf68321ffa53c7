//! The storage of the hourly counters: one contract, two engines, one test suite for both.

use std::collections::BTreeMap;

use async_trait::async_trait;
use tokio::sync::watch;

use crate::{
    domain::{
        faults::stability::{Hour, ModelCounters, NodeHourCounters},
        ledger::NodeId,
    },
    store::StoreError,
};

#[cfg(test)]
pub(crate) mod contract;

/// The maximum number of shares in one call.
pub(crate) const SHARES_MAX: usize = 256;
/// The maximum number of hours that one call reads.
pub(crate) const HOURS_MAX: i64 = 256;

/// The hourly buckets of one installation.
///
/// A share belongs to one node and is always complete, so storing it twice, late, or out of order has the effect of storing
/// the greatest one once. Dropping a future leaves the store consistent.
#[async_trait]
pub(crate) trait StabilityStore: Send + Sync {
    /// Replaces the node's share of an hour, if the new one's [`Share::watermark`] is greater; otherwise nothing changes.
    /// Each hour changes as a whole. At most [`SHARES_MAX`]. Shares of hours that ended
    /// [`crate::domain::ledger::consumption::RETENTION_DAYS`] ago or earlier may be ignored.
    async fn put_shares(&self, node: &NodeId, shares: &[NodeHourCounters]) -> Result<(), StoreError>;

    /// The buckets of all nodes together, from `first` to `last`, both included; an hour without requests may be missing. Of
    /// more than [`HOURS_MAX`] hours, the last ones. Unreadable parts are left out with a warning.
    async fn buckets(&self, first: Hour, last: Hour) -> Result<BTreeMap<Hour, ModelCounters>, StoreError>;

    /// Changes whenever the store may have lost acknowledged writes. Nodes then store their shares again.
    fn epochs(&self) -> watch::Receiver<u64>;
}

/// The hours from `first` to `last`, both included; of more than [`HOURS_MAX`], the last ones.
pub(crate) fn hours(first: Hour, last: Hour) -> impl Iterator<Item = Hour> {
    let first = first.max(last.plus(1 - HOURS_MAX));
    (first.number()..=last.number()).map(Hour::from_number)
}
