//! Passes rows of the consumption log to sinks, and reads the log.
//!
//! A row is stored in one place, the log backend. Either the store is the log backend and gets a row with its settlement, or a
//! sink is and gets its rows from the journal. A request never writes rows to a sink itself. For each sink and each lane of the
//! journal, a [`Feeder`] reads rows in the order of their numbers and hands them over in batches. A sink stores its watermark in
//! the same transaction as the rows, so it has each row exactly once even after a crash. The journal retains the rows that a sink
//! lacks. Settlement does not wait for sinks.
//!
//! A reader gets the rows in the log backend together with the rows that the log backend has not acknowledged yet ([`reading`]).
//! The rows are compared with the daily sums in [`proof`].

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

pub(crate) mod store_log;
mod tail;

use std::{collections::BTreeMap, ops::RangeInclusive, sync::Arc};

use async_trait::async_trait;
use thiserror::Error;

use crate::{
    domain::{keys::KeyId, ledger::NodeId},
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

/// Consecutive rows of one lane of the journal, handed to a sink together. A row is identified by the lane's name and its number
/// in the lane; no other row ever has both.
#[derive(Clone, Debug, PartialEq)]
pub struct Batch {
    /// The name of the lane that the rows come from.
    pub node: NodeId,
    /// The sink's watermark before the batch: the sink has all rows of the lane with lower numbers, and no others.
    pub after: u64,
    /// The sink's watermark after the batch. It is greater than `after`.
    pub upto: u64,
    /// The rows whose numbers are at least `after` and less than `upto`, in the order of their numbers. There is at least one.
    /// Numbers are not consecutive, and rows lost to damage or a full disk are missing.
    pub rows: Vec<Arc<NumberedRow>>,
}

/// Why a sink did not append a batch.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SinkError {
    /// The batch does not begin at the sink's watermark. The sink has not changed.
    #[error(
        "cannot append the batch: the sink has the lane's rows before number {watermark}, and the batch does not begin there"
    )]
    OutOfOrder {
        /// The sink's current watermark for the lane.
        watermark: u64,
    },
    /// The sink cannot be reached, or has refused the batch. It is not known whether the sink has stored the batch. The message
    /// says why, and what to do if an operator can help. It contains no secret.
    #[error("{0}")]
    Unavailable(String),
}

/// A consumer of rows: a log backend that the journal feeds, or the billing events.
///
/// Dropping the future of a call leaves the sink consistent: it has the complete batch and the new watermark, or neither. Lanes
/// are independent: they can be fed concurrently, also by several processes. Only one task at a time feeds a lane.
#[async_trait]
pub trait Sink: Send + Sync {
    /// Returns the sink's name in metrics, messages and settings ([`crate::config::JournalSink::name`]).
    fn name(&self) -> &'static str;

    /// Returns the maximum size and age of the batches that this sink gets.
    fn batching(&self) -> BatchLimits;

    /// Returns the sink's watermark for the lane of `node`: the sink has all rows of the lane with lower numbers. It is 0 if the
    /// sink has no row of the lane. The watermark is durable: it decreases only if the sink loses rows.
    async fn watermark(&self, node: &NodeId) -> Result<u64, SinkError>;

    /// Appends the rows of a batch and sets the lane's watermark to [`Batch::upto`], in one atomic and durable change.
    ///
    /// If the watermark is at least [`Batch::upto`], the sink has the batch already, and nothing changes. If the watermark is
    /// neither that high nor equal to [`Batch::after`], the result is [`SinkError::OutOfOrder`].
    async fn append(&self, batch: &Batch) -> Result<(), SinkError>;
}

/// The read access to a log backend.
#[async_trait]
pub trait LogBackend: Send + Sync {
    /// Returns the log backend's name: its value in the setting `[log] home`, which messages and answers use too.
    fn name(&self) -> &'static str;

    /// Reads one page of the rows of all lanes that ended on the query's day.
    async fn page(&self, ask: &LogPageQuery) -> Result<RowPage, LogBackendError>;

    /// Reads the most recent rows of a key that ended on one of `days`: at most `limit`, and at most
    /// [`PAGE_ROWS_MAX`](crate::sinks::asks::PAGE_ROWS_MAX).
    async fn latest(
        &self,
        account: &str,
        key: &KeyId,
        days: RangeInclusive<i64>,
        limit: usize,
    ) -> Result<LatestKeyRows, LogBackendError>;

    /// Reads the most recent rows that match a filter. The default implementation reads pages of time slices.
    async fn newest(&self, ask: &NewestRowsQuery) -> Result<NewestRows, LogBackendError> {
        reading::newest(ask, |page| Box::pin(async move { self.page(&page).await })).await
    }

    /// Returns the watermark of each lane of which the log backend has rows. `None` means that the log backend has each row as
    /// soon as it is settled, and so needs no watermarks.
    async fn watermarks(&self) -> Result<Option<BTreeMap<NodeId, u64>>, LogBackendError>;
}

/// A log backend that gets its rows from the journal.
pub(crate) trait FedLogBackend: LogBackend + Sink {}

impl<H: LogBackend + Sink> FedLogBackend for H {}

/// The log backend that `[log] home` names, opened.
#[derive(Clone)]
pub(crate) enum OpenLogBackend {
    /// A sink that gets its rows from the journal.
    Fed(FedLog),
    /// The store, which gets each row with its settlement.
    Store(Arc<StoreLog>),
}

/// A log backend that gets its rows from the journal, with what its feeders report.
#[derive(Clone)]
pub(crate) struct FedLog {
    /// The log backend itself.
    pub(crate) home: Arc<dyn FedLogBackend>,
    /// The statistics of the log backend's feeders.
    pub(crate) stats: Arc<SinkStats>,
    /// The rows that were read from the journal and that the log backend has not acknowledged.
    pub(crate) tails: LogTails,
}

/// The log backend that `[log] former_home` names. It is read in addition to the current one.
#[derive(Clone)]
pub(crate) enum FormerLogBackend {
    /// A Redis store with lists of rows.
    Store(Arc<StoreLog>),
    /// Any log backend but the store.
    Elsewhere(Arc<dyn LogBackend>),
}

impl FedLog {
    /// Wraps a log backend that has no feeders yet.
    pub(crate) fn new(home: Arc<dyn FedLogBackend>) -> Self {
        Self {
            home,
            stats: Arc::default(),
            tails: LogTails::default(),
        }
    }

    /// Returns the log backend's name in the setting `[log] home`.
    pub(crate) fn name(&self) -> &'static str {
        LogBackend::name(&*self.home)
    }
}

impl OpenLogBackend {
    /// Returns the log backend's name in the setting `[log] home`.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Fed(fed) => fed.name(),
            Self::Store(store) => store.name(),
        }
    }

    /// Creates a reader of this log backend and, if there is one, of the former log backend.
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
    /// Returns the log backend for reading, whichever it is.
    pub(crate) fn as_backend(&self) -> &dyn LogBackend {
        match self {
            Self::Store(store) => &**store,
            Self::Elsewhere(home) => &**home,
        }
    }
}
