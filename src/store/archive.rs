//! The content of a store as a sequence of items that does not depend on the engine. Backups consist of these items.

use std::{collections::BTreeMap, sync::Arc};

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use smol_str::SmolStr;
use tokio::sync::mpsc;

use crate::{
    domain::{
        faults::stability::{Hour, ModelCounters},
        keys::{
            key::{KeyId, KeyRecord},
            secret::KeyDigest,
        },
        ledger::{
            NodeId,
            account::{AccountSummary, key::AccountKey, operations::RecordedOperation},
            consumption::Row,
            daily_sums::{DailySums, Sums},
        },
    },
    store::StoreError,
};

pub(crate) mod file;

/// One item of a store's content. Data that expires or ends by itself is not archived: holds, leases, rate-limit buckets,
/// sessions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ArchiveItem {
    /// A key, with its record.
    Key {
        /// The digest by which the key is found.
        digest: KeyDigest,
        /// The key's record.
        record: Box<KeyRecord>,
        /// When the key was last used, in seconds since the Unix epoch; `None` if it was never used.
        last_used: Option<i64>,
    },
    /// The id of a deleted key.
    KeyGone {
        /// The deleted key's id.
        id: KeyId,
    },
    /// An account: balance, limits and watermarks.
    Account {
        /// The account's name.
        id: String,
        /// The account's balance, limits and watermarks.
        standing: Box<AccountSummary>,
        /// The operations that the account stores, oldest first.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        operations: Vec<RecordedOperation>,
    },
    /// The data of an account about one of its keys: its copy of the key's terms, and the key's counters.
    AccountKey {
        /// The account to which the key belongs.
        account: String,
        /// The key's id.
        id: KeyId,
        /// The copy of the key's terms, and the key's spending.
        state: Box<AccountKey>,
    },
    /// The sums of one subject over an account's rows of a day, by model. If several items have the same day and subject, the
    /// last one is valid: rows may be added to a day while it is read.
    DaySums {
        /// The account's name.
        account: String,
        /// The day, as the number of days since the Unix epoch, in UTC.
        day: i64,
        /// The subject's name in the stores (`a`; `k:` and a key's id; `o`; `t:` and a tag).
        subject: String,
        /// The subject's sums by model.
        models: BTreeMap<SmolStr, Sums>,
    },
    /// A row of the consumption log, from a store that keeps the log. The sums of the row's day already include it. The rows of
    /// one account and day are in their original order.
    Row { row: Box<Row> },
    /// The stability counters of one node for one hour.
    Stability {
        /// The node that counted.
        node: NodeId,
        /// The hour, in UTC.
        hour: Hour,
        /// The hour's counters by model.
        bucket: ModelCounters,
    },
}

impl ArchiveItem {
    /// Returns the sums of an account's day as items.
    pub(crate) fn day_sums(account: &str, day: i64, sums: &DailySums) -> Vec<Self> {
        let mut subjects: BTreeMap<String, BTreeMap<SmolStr, Sums>> = BTreeMap::new();
        for sum in sums.iter().filter(|sum| sum.day == day) {
            let models = subjects.entry(sum.subject.store_name()).or_default();
            models.insert(sum.model, sum.sums);
        }
        let items = subjects.into_iter().map(|(subject, models)| Self::DaySums {
            account: account.to_owned(),
            day,
            subject,
            models,
        });
        items.collect()
    }
}

/// A part of a store that can be backed up and restored.
#[async_trait]
pub(crate) trait Archive: Send + Sync {
    /// Sends all items to `to`. An account is sent with its keys, sums and rows as of one moment, so that the log and the
    /// counters agree. Ends early if the receiver is dropped. [`StoreError::Busy`] if rows were added faster than they were read;
    /// then start again.
    async fn dump(&self, to: mpsc::Sender<ArchiveItem>) -> Result<(), StoreError>;

    /// Whether the store has no key and no account. Stability hours are ignored, because they are merged.
    async fn is_empty(&self) -> Result<bool, StoreError>;

    /// Adds items to a store that was empty before. Ignores items of kinds that belong to another part. The items are on disk
    /// when this returns.
    async fn load(&self, items: &[ArchiveItem]) -> Result<(), StoreError>;
}

/// Several archives as one: first the keys, then the accounts with their log.
pub(crate) struct Archives(pub Vec<Arc<dyn Archive>>);

#[async_trait]
impl Archive for Archives {
    async fn dump(&self, to: mpsc::Sender<ArchiveItem>) -> Result<(), StoreError> {
        for archive in &self.0 {
            archive.dump(to.clone()).await?;
        }
        Ok(())
    }

    async fn is_empty(&self) -> Result<bool, StoreError> {
        for archive in &self.0 {
            if !archive.is_empty().await? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    async fn load(&self, items: &[ArchiveItem]) -> Result<(), StoreError> {
        for archive in &self.0 {
            archive.load(items).await?;
        }
        Ok(())
    }
}
