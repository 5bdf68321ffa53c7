//! The content of a store as a sequence of items, the same whatever the engine; used for backups.

use std::{collections::BTreeMap, sync::Arc};

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
            daily_sums::{DailySums, Sums},
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
    /// What an account's rows of a day add up to, of one subject: by model. The last of several of one day and subject holds: rows
    /// may come to a day while it is read.
    DaySums {
        /// The account.
        account: String,
        /// The day, counted from the Unix epoch, in UTC.
        day: i64,
        /// Whose sums these are, as the stores name it (`a`, `k:` and a key's id, `o`, `t:` and a tag).
        subject: String,
        /// The sums by model.
        models: BTreeMap<SmolStr, Sums>,
    },
    /// A row of the consumption log, of a store that is its home. Its day's sums count it already. Rows of one account and day
    /// come in their order.
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
    /// The sums of an account's day, as items.
    pub(crate) fn day_sums(account: &str, day: i64, sums: &DailySums) -> Vec<Self> {
        let mut subjects: BTreeMap<String, BTreeMap<SmolStr, Sums>> = BTreeMap::new();
        for sum in sums.iter().filter(|sum| sum.day == day) {
            let models = subjects.entry(sum.subject.text()).or_default();
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
    /// Sends all items; an account with its keys, sums and rows as of one moment, so that the log and the counters agree. Ends early
    /// when nobody receives any more. [`StoreError::Busy`]: rows came faster than they were read; begin anew.
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
