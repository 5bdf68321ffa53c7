//! What a sink is.

use std::sync::Arc;

use async_trait::async_trait;
use thiserror::Error;

use crate::{domain::ledger::NodeId, journal::NumberedRow, sinks::batching::Batching};

/// Rows of one lane of the journal. A node's name and a row's number say which row it is, for ever and everywhere.
#[derive(Clone, Debug, PartialEq)]
pub struct Batch {
    /// The name of the lane.
    pub node: NodeId,
    /// The sink has all rows of the lane with lower numbers, and no others.
    pub after: u64,
    /// The same, once it has the batch: more than `after`.
    pub upto: u64,
    /// The rows from `after` to below `upto`, in the order of their numbers; one at least. Numbers may be left out: they are
    /// not consecutive, and rows that damage or a full disk has taken do not come.
    pub rows: Vec<Arc<NumberedRow>>,
}

/// Why a sink does not have a batch.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SinkError {
    /// The batch does not begin where the sink's rows of the lane end. Nothing has changed.
    #[error("the sink has the lane's rows up to {watermark}, and the batch does not begin there")]
    OutOfOrder {
        /// What [`Sink::watermark`] says.
        watermark: u64,
    },
    /// The sink cannot be reached, or has refused. It is not known whether the batch is there. Names what to do, where
    /// somebody has to, and no secret.
    #[error("{0}")]
    Unavailable(String),
}

/// A place that rows go to.
///
/// Dropping a future leaves the sink whole: a batch is there in full, with its watermark, or not at all. Lanes have nothing to
/// do with each other, and may be fed at the same time, also by several processes; one lane is fed by one task at a time.
#[async_trait]
pub trait Sink: Send + Sync {
    /// Its name in metrics, messages and settings ([`crate::config::JournalSink::name`]).
    fn name(&self) -> &'static str;

    /// How it wants its batches.
    fn batching(&self) -> Batching;

    /// Up to which number it has the rows of a lane; 0 if it has none. Durable: never less than a batch that it has
    /// acknowledged, unless the sink has lost rows.
    async fn watermark(&self, node: &NodeId) -> Result<u64, SinkError>;

    /// Takes a batch and sets the lane's watermark to [`Batch::upto`], in one atomic and durable change.
    ///
    /// A watermark of [`Batch::upto`] or more: the batch is there, and nothing changes. A watermark that is neither that nor
    /// [`Batch::after`]: [`SinkError::OutOfOrder`].
    async fn append(&self, batch: &Batch) -> Result<(), SinkError>;
}
