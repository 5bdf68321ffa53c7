//! The content of a store as a sequence of items, independent of the engine; used for backups.

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

/// One stored thing. State that ends by itself is not archived: holds, leases, the buckets of rate limits, sessions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ArchiveItem {
    /// A key, with its record.
    Key {
        /// The digest by which the key is found.
        digest: KeyDigest,
        /// The key's record.
        record: Box<KeyRecord>,
        /// When it was last used, in seconds since the Unix epoch.
        last_used: Option<i64>,
    },
    /// A deleted key.
    KeyGone {
        /// The deleted key.
        id: KeyId,
    },
    /// An account: balance, limits and watermarks.
    Account {
        /// The account's name.
        id: String,
        /// Its balance, limits and watermarks.
        standing: Box<AccountSummary>,
        /// The operations that the account remembers, oldest first.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        operations: Vec<RecordedOperation>,
    },
    /// An account's state of one of its keys: its copy of the key's terms, and the key's counters.
    AccountKey {
        /// The account that the key belongs to.
        account: String,
        /// The key's id.
        id: KeyId,
        /// The copy of the key's terms, and its spending.
        state: Box<AccountKey>,
    },
    /// The sums of one subject over an account's rows of a day, by model. Of several items with the same day and subject, the
    /// last one holds: a day may receive rows while it is read.
    DaySums {
        /// The account.
        account: String,
        /// The day, counted from the Unix epoch, in UTC.
        day: i64,
        /// The subject's name in the stores (`a`, `k:` and a key's id, `o`, `t:` and a tag).
        subject: String,
        /// The sums by model.
        models: BTreeMap<SmolStr, Sums>,
    },
    /// A row of the consumption log, of a store in which the log is kept. The sums of its day already count it. The rows of
    /// one account and day come in their order.
    Row { row: Box<Row> },
    /// The counters of one node and hour.
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
    /// The sums of an account's day, as items.
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

/// An engine's part in backups.
#[async_trait]
pub(crate) trait Archive: Send + Sync {
    /// Sends all items. An account comes with its keys, sums and rows as of one moment, so that the log and the counters
    /// agree. Ends early when the receiver is gone. [`StoreError::Busy`]: rows were added faster than they were read; start
    /// again.
    async fn dump(&self, to: mpsc::Sender<ArchiveItem>) -> Result<(), StoreError>;

    /// Whether there is no key and no account. Hours do not count: they are merged.
    async fn is_empty(&self) -> Result<bool, StoreError>;

    /// Adds items to a store that was empty. Ignores items that another engine stores. On disk when it returns.
    async fn load(&self, items: &[ArchiveItem]) -> Result<(), StoreError>;
}

/// Several archives as one: keys, then accounts with their log.
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
