//! Writes rows of the consumption log to sinks, and reads the log.
//!
//! A row is in one place, the log backend: the store, which gets it with its settlement, or a sink that the journal feeds, never
//! a request and never the store. A [`Feeder`] for each sink and each lane of the journal reads rows in the order of their
//! numbers and hands them over in batches. A sink stores its watermark in the same transaction as the rows, so it has each row
//! exactly once even after a crash. The journal keeps the rows that a sink lacks. Settlement does not wait for sinks.
//!
//! The log backend is read together with the rows that it has not acknowledged yet ([`reading`]), and is compared with the
//! daily sums ([`proof`]).

pub(crate) mod asks;
pub(crate) mod backfill;
mod batcher;
#[cfg(test)]
pub(crate) mod contract;
pub(crate) mod counters;
pub(crate) mod events;
mod feeder;
pub(crate) mod files;
#[cfg(test)]
pub(crate) mod memory;
pub(crate) mod own_journal;
pub(crate) mod postgres;
pub(crate) mod proof;
pub(crate) mod reading;
mod slices;
pub(crate) mod store_log;
mod tail;

use std::{collections::BTreeMap, ops::RangeInclusive, sync::Arc};

use async_trait::async_trait;
use thiserror::Error;

use crate::{
    domain::{keys::key::KeyId, ledger::NodeId},
    journal::NumberedRow,
    sinks::{
        asks::{LatestKeyRows, LogBackendError, LogPageQuery, NewestRows, NewestRowsQuery, RowPage},
        batcher::BatchLimits,
        reading::LogReader,
        store_log::StoreLog,
        tail::LogTails,
    },
};

pub(crate) use crate::sinks::batcher::SinkStats;
pub(crate) use crate::sinks::feeder::Feeder;

/// Rows of one lane of the journal. The node's name and the row's number identify a row, for ever and everywhere.
#[derive(Clone, Debug, PartialEq)]
pub struct Batch {
    /// The name of the lane.
    pub node: NodeId,
    /// The sink's watermark before the batch: it has all rows of the lane with lower numbers, and no others.
    pub after: u64,
    /// The sink's watermark after the batch; greater than `after`.
    pub upto: u64,
    /// The rows from `after` to below `upto`, in the order of their numbers; at least one. Numbers are not consecutive, and rows
    /// lost to damage or a full disk are missing.
    pub rows: Vec<Arc<NumberedRow>>,
}

/// Why a sink has not taken a batch.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SinkError {
    /// The batch does not begin at the sink's watermark. Nothing has changed.
    #[error("the sink has the lane's rows up to {watermark}, but the batch begins elsewhere")]
    OutOfOrder {
        /// The sink's watermark.
        watermark: u64,
    },
    /// The sink cannot be reached, or has refused the batch. It may have the batch. The text says what to do, if anything, and
    /// contains no secret.
    #[error("{0}")]
    Unavailable(String),
}

/// A consumer of rows.
///
/// A dropped future leaves the sink consistent: it has the whole batch and its watermark, or neither. Lanes are independent:
/// they may be fed at the same time, also by several processes. One lane is fed by one task at a time.
#[async_trait]
pub trait Sink: Send + Sync {
    /// Its name in metrics, messages and settings ([`crate::config::JournalSink::name`]).
    fn name(&self) -> &'static str;

    /// The size and age limits of its batches.
    fn batching(&self) -> BatchLimits;

    /// The number before which it has all rows of a lane; 0 if it has none. Durable: it never decreases after an acknowledged
    /// batch, unless the sink has lost rows.
    async fn watermark(&self, node: &NodeId) -> Result<u64, SinkError>;

    /// Adds a batch and sets the lane's watermark to [`Batch::upto`], in one atomic and durable change.
    ///
    /// If the watermark is at least [`Batch::upto`], the sink has the batch and nothing changes. Any other watermark than
    /// [`Batch::after`] is [`SinkError::OutOfOrder`].
    async fn append(&self, batch: &Batch) -> Result<(), SinkError>;
}

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

/// The current log backend.
#[derive(Clone)]
pub(crate) enum OpenLogBackend {
    /// A sink that the journal feeds.
    Fed(FedLog),
    /// The store, which gets rows with their settlement.
    Store(Arc<StoreLog>),
}

/// A log backend that the journal feeds, with the state of its feeders.
#[derive(Clone)]
pub(crate) struct FedLog {
    /// The log backend.
    pub(crate) home: Arc<dyn FedLogBackend>,
    /// The statistics of its feeders.
    pub(crate) stats: Arc<SinkStats>,
    /// The rows that it has not acknowledged.
    pub(crate) tails: LogTails,
}

/// The former log backend, which is read as long as it has rows.
#[derive(Clone)]
pub(crate) enum FormerLogBackend {
    /// The lists of a Redis store.
    Store(Arc<StoreLog>),
    /// Not the store.
    Elsewhere(Arc<dyn LogBackend>),
}

impl FedLog {
    /// A log backend without feeders yet.
    pub(crate) fn new(home: Arc<dyn FedLogBackend>) -> Self {
        Self {
            home,
            stats: Arc::default(),
            tails: LogTails::default(),
        }
    }

    /// Its name in `[log] home`.
    pub(crate) fn name(&self) -> &'static str {
        LogBackend::name(&*self.home)
    }
}

impl OpenLogBackend {
    /// Its name in `[log] home`.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Fed(fed) => fed.name(),
            Self::Store(store) => store.name(),
        }
    }

    /// Reads this log backend and the former one.
    pub(crate) fn reading(&self, former: Option<&FormerLogBackend>) -> LogReader {
        let former = former.map(|former| match former {
            FormerLogBackend::Store(store) => Arc::clone(store) as Arc<dyn LogBackend>,
            FormerLogBackend::Elsewhere(home) => Arc::clone(home),
        });
        match self {
            Self::Fed(fed) => LogReader::new(Arc::clone(&fed.home) as _, former).with_tails(fed.tails.clone()),
            Self::Store(store) => LogReader::new(Arc::clone(store) as _, former),
        }
    }
}

impl FormerLogBackend {
    /// The log backend, for reading.
    pub(crate) fn as_backend(&self) -> &dyn LogBackend {
        match self {
            Self::Store(store) => &**store,
            Self::Elsewhere(home) => &**home,
        }
    }
}
