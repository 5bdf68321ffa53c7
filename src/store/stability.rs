//! The storage of the hourly counters: one contract, two engines, one test suite for both.

use std::collections::BTreeMap;

use async_trait::async_trait;
use tokio::sync::watch;

use crate::{
    domain::{
        faults::stability::{Bucket, Hour, Share},
        ledger::NodeId,
    },
    store::StoreError,
};

#[cfg(test)]
pub(crate) mod contract;

/// The most shares that one call tells.
pub(crate) const SHARES_MAX: usize = 256;
/// The most hours that one call reads.
pub(crate) const HOURS_MAX: i64 = 256;

/// The hourly buckets of one installation.
///
/// A share is a node's alone and told in full, so telling it twice, late, or out of order has the effect of telling the
/// greatest one once. Dropping a future leaves the store whole.
#[async_trait]
pub(crate) trait StabilityStore: Send + Sync {
    /// Each share takes the place of what the node told of that hour before, if its [`Share::watermark`] is greater; else
    /// nothing changes. Each hour changes as a whole. At most [`SHARES_MAX`]. What ended
    /// [`crate::domain::ledger::consumption::RETENTION_DAYS`] ago or earlier may be passed over.
    async fn tell(&self, node: &NodeId, shares: &[Share]) -> Result<(), StoreError>;

    /// The buckets of all nodes together, from `first` to `last`, both included; an hour without requests may be missing. Of
    /// more than [`HOURS_MAX`] hours, the last ones. A part that is not readable is left out with a warning.
    async fn buckets(&self, first: Hour, last: Hour) -> Result<BTreeMap<Hour, Bucket>, StoreError>;

    /// Moves whenever the store may have lost something it had acknowledged. Whoever has told it shares then tells them
    /// again.
    fn epochs(&self) -> watch::Receiver<u64>;
}

/// The hours from `first` to `last`, both included; of more than [`HOURS_MAX`], the last ones.
pub(crate) fn hours(first: Hour, last: Hour) -> impl Iterator<Item = Hour> {
    let first = first.max(last.plus(1 - HOURS_MAX));
    (first.number()..=last.number()).map(Hour::from_number)
}
