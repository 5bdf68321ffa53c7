//! The content of a store as a sequence of items, the same whatever the engine; used for backups.

use std::sync::Arc;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use smol_str::SmolStr;
use tokio::sync::mpsc;

use crate::{
    domain::{
        faults::stability::{Bucket, Hour},
        keys::{
            key::{KeyId, KeyRecord},
            secret::KeyDigest,
        },
        ledger::{
            NodeId,
            account::{AccountSummary, key::AccountKey, operations::Recorded},
            consumption::Row,
            daily_sums::{DailySum, Sums},
        },
    },
    store::StoreError,
};

pub(crate) mod file;

/// One thing that is kept. What ends by itself is not: holds, leases, the buckets of rate limits, sessions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Item {
    /// A key, with its record.
    Key {
        /// The digest under which the key is found.
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
        /// The operations that it remembers, the oldest first.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        operations: Vec<Recorded>,
    },
    /// What an account knows of one of its keys: the mirror of its record, and its counters.
    AccountKey {
        /// The account that the key belongs to.
        account: String,
        /// The key's id.
        id: KeyId,
        /// The mirror of its record, and its spending.
        state: Box<AccountKey>,
    },
    /// How many rows of an account's day had left for the log's home: the backup has their sums, and not them. Before the rows
    /// that it has of the day.
    Trimmed {
        /// The account.
        account: String,
        /// The day, counted from the Unix epoch, in UTC.
        day: i64,
        /// How many.
        rows: u64,
    },
    /// What those add up to: the sums of one subject and model. Behind their number.
    TrimmedSum {
        /// The account.
        account: String,
        /// The day, counted from the Unix epoch, in UTC.
        day: i64,
        /// Whose sums these are, as the stores name it (`a`, `k:` and a key's id, `o`, `t:` and a tag).
        subject: String,
        /// The model.
        model: SmolStr,
        /// The sums.
        sums: Box<Sums>,
    },
    /// A row of the consumption log. Rows of one account and day come in their order.
    Row { row: Box<Row> },
    /// What a node has counted in an hour.
    Stability {
        /// The node that counted.
        node: NodeId,
        /// The hour, in UTC.
        hour: Hour,
        /// The hour's counters by model.
        bucket: Bucket,
    },
}

impl Item {
    /// What rows of an account's day add up to that had left, as items.
    pub(crate) fn trimmed(account: &str, day: i64, rows: u64, sums: impl IntoIterator<Item = DailySum>) -> Vec<Self> {
        let trimmed = Self::Trimmed {
            account: account.to_owned(),
            day,
            rows,
        };
        let sums = sums.into_iter().map(|sum| Self::TrimmedSum {
            account: account.to_owned(),
            day,
            subject: sum.subject.text(),
            model: sum.model,
            sums: Box::new(sum.sums),
        });
        std::iter::once(trimmed).chain(sums).collect()
    }
}

/// An engine's part in backups.
#[async_trait]
pub(crate) trait Archive: Send + Sync {
    /// Sends all items; an account with its keys and rows as of one moment, so that the log and the counters agree. Ends early
    /// when nobody receives any more. [`StoreError::Busy`]: rows left for the log's home while they were read; begin anew.
    async fn dump(&self, to: mpsc::Sender<Item>) -> Result<(), StoreError>;

    /// Whether there is nothing: no key, no account. Hours do not count, they are merged.
    async fn is_empty(&self) -> Result<bool, StoreError>;

    /// Adds items to a store that was empty. What another engine keeps is passed over. On disk when it returns.
    async fn load(&self, items: &[Item]) -> Result<(), StoreError>;
}

/// Several archives as one: keys, then accounts with their log.
pub(crate) struct Archives(pub Vec<Arc<dyn Archive>>);

#[async_trait]
impl Archive for Archives {
    async fn dump(&self, to: mpsc::Sender<Item>) -> Result<(), StoreError> {
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

    async fn load(&self, items: &[Item]) -> Result<(), StoreError> {
        for archive in &self.0 {
            archive.load(items).await?;
        }
        Ok(())
    }
}
