//! A log backend: the store, files, or a database.

use std::{collections::BTreeMap, ops::RangeInclusive};

use async_trait::async_trait;

use crate::{
    domain::{keys::key::KeyId, ledger::NodeId},
    sinks::{
        asks::{LatestKeyRows, LogBackendError, LogPageQuery, NewestRows, NewestRowsQuery, RowPage},
        sink::Sink,
        slices,
    },
};

/// A log backend, for reading.
#[async_trait]
pub trait LogBackend: Send + Sync {
    /// Its name in `[log] home`, messages and answers.
    fn name(&self) -> &'static str;

    /// Reads a page of a day's rows, of all lanes.
    async fn page(&self, ask: &LogPageQuery) -> Result<RowPage, LogBackendError>;

    /// Reads the last rows of a key that ended on one of these days, at most `limit` and
    /// [`PAGE_ROWS_MAX`](crate::sinks::asks::PAGE_ROWS_MAX).
    async fn latest(
        &self,
        account: &str,
        key: &KeyId,
        days: RangeInclusive<i64>,
        limit: usize,
    ) -> Result<LatestKeyRows, LogBackendError>;

    /// Reads the newest rows; by default with pages of time slices.
    async fn newest(&self, ask: &NewestRowsQuery) -> Result<NewestRows, LogBackendError> {
        slices::newest(ask, |page| Box::pin(async move { self.page(&page).await })).await
    }

    /// The watermark of each lane that has rows; `None` if a row is there as soon as it is settled.
    async fn watermarks(&self) -> Result<Option<BTreeMap<NodeId, u64>>, LogBackendError>;
}

/// A log backend that the journal feeds.
pub(crate) trait FedLogBackend: LogBackend + Sink {}

impl<H: LogBackend + Sink> FedLogBackend for H {}
