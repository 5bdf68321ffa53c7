//! Where the log is read from: the store, files, or a database.

use std::{collections::BTreeMap, ops::RangeInclusive};

use async_trait::async_trait;

use crate::{
    domain::{keys::key::KeyId, ledger::NodeId},
    sinks::{
        asks::{HomeError, Latest, LogPage, Newest, NewestAsk, PageAsk},
        sink::Sink,
        slices,
    },
};

/// A home of the log, as it is read.
#[async_trait]
pub trait LogHome: Send + Sync {
    /// Its name in messages and answers.
    fn name(&self) -> &'static str;

    /// Rows of a day over all lanes, as [`PageAsk`] and [`LogPage`] say.
    async fn page(&self, ask: &PageAsk) -> Result<LogPage, HomeError>;

    /// The last rows of a key that ended on one of these days, at most `limit` and
    /// [`PAGE_ROWS_MAX`](crate::sinks::asks::PAGE_ROWS_MAX).
    async fn latest(
        &self,
        account: &str,
        key: &KeyId,
        days: RangeInclusive<i64>,
        limit: usize,
    ) -> Result<Latest, HomeError>;

    /// The newest rows, by pages of slices of time.
    async fn newest(&self, ask: &NewestAsk) -> Result<Newest, HomeError> {
        slices::newest(ask, |page| Box::pin(async move { self.page(&page).await })).await
    }

    /// Up to which number it has the rows of each lane that has any. `None`: a row is there as soon as it is settled.
    async fn watermarks(&self) -> Result<Option<BTreeMap<NodeId, u64>>, HomeError>;
}

/// A home that is fed by the journal.
pub(crate) trait FedHome: LogHome + Sink {}

impl<H: LogHome + Sink> FedHome for H {}
