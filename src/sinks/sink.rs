//! A sink: a consumer of rows.

use std::sync::Arc;

use async_trait::async_trait;
use thiserror::Error;

use crate::{domain::ledger::NodeId, journal::NumberedRow, sinks::batching::BatchLimits};

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
