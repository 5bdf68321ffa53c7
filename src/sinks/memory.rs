//! A sink in memory, for tests. It is the model that other sinks are compared with.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use parking_lot::Mutex;

use crate::{
    domain::ledger::NodeId,
    journal::NumberedRow,
    sinks::{Batch, BatchLimits, Linger, Sink, SinkError, contract::Place},
};

/// The watermark and the rows of one lane.
#[derive(Clone, Debug, Default)]
struct Lane {
    watermark: u64,
    rows: Vec<Arc<NumberedRow>>,
}

/// A sink in memory that can be made to fail.
#[derive(Debug)]
pub(crate) struct Memory {
    lanes: Mutex<BTreeMap<NodeId, Lane>>,
    batching: BatchLimits,
    /// The faults of the next calls of `append`. The last element is the fault of the next call.
    faults: Mutex<Vec<Fault>>,
    /// Whether calls of `watermark` fail.
    is_away: AtomicBool,
    /// Whether calls of `append` fail.
    refuses: AtomicBool,
}

/// A way in which a call of `append` fails.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    /// The batch is not stored.
    Before,
    /// The batch is stored, but its acknowledgement is lost.
    Behind,
    /// The sink loses all rows of the lane and its watermark.
    Forgets,
}

/// Returns the error of a sink that cannot be reached.
fn away<T>() -> Result<T, SinkError> {
    Err(SinkError::Unavailable("it is away".to_owned()))
}

impl Memory {
    pub(crate) fn new(batching: BatchLimits) -> Arc<Self> {
        Arc::new(Self {
            lanes: Mutex::default(),
            batching,
            faults: Mutex::default(),
            is_away: AtomicBool::new(false),
            refuses: AtomicBool::new(false),
        })
    }

    /// Makes one of the next calls of `append` fail. Faults occur in the order in which they were set.
    pub(crate) fn fail(&self, fault: Fault) {
        self.faults.lock().insert(0, fault);
    }

    /// Sets whether calls of `watermark` fail.
    pub(crate) fn set_away(&self, is_away: bool) {
        self.is_away.store(is_away, Ordering::Relaxed);
    }

    /// Sets whether calls of `append` fail.
    pub(crate) fn set_refusing(&self, refuses: bool) {
        self.refuses.store(refuses, Ordering::Relaxed);
    }

    /// Returns the stored rows of a lane.
    pub(crate) fn of(&self, node: &NodeId) -> Vec<Arc<NumberedRow>> {
        self.lanes.lock().get(node).cloned().unwrap_or_default().rows
    }
}

#[async_trait]
impl Sink for Memory {
    fn name(&self) -> &'static str {
        "memory"
    }

    fn batching(&self) -> BatchLimits {
        self.batching
    }

    async fn watermark(&self, node: &NodeId) -> Result<u64, SinkError> {
        if self.is_away.load(Ordering::Relaxed) {
            return away();
        }
        Ok(self.lanes.lock().get(node).map_or(0, |lane| lane.watermark))
    }

    async fn append(&self, batch: &Batch) -> Result<(), SinkError> {
        if self.refuses.load(Ordering::Relaxed) {
            return away();
        }
        let fault = self.faults.lock().pop();
        let mut lanes = self.lanes.lock();
        let lane = lanes.entry(batch.node.clone()).or_default();
        match fault {
            Some(Fault::Before) => return away(),
            Some(Fault::Forgets) => {
                *lane = Lane::default();
                return away();
            }
            Some(Fault::Behind) | None => {}
        }
        if lane.watermark >= batch.upto {
            return Ok(());
        }
        if lane.watermark != batch.after {
            return Err(SinkError::OutOfOrder {
                watermark: lane.watermark,
            });
        }
        lane.rows.extend(batch.rows.iter().cloned());
        lane.watermark = batch.upto;
        if fault.is_some() { away() } else { Ok(()) }
    }
}

#[async_trait]
impl Place for Arc<Memory> {
    async fn open(&self) -> Arc<dyn Sink> {
        Self::clone(self)
    }

    async fn rows(&self, node: &NodeId) -> Vec<Arc<NumberedRow>> {
        self.of(node)
    }
}

#[tokio::test]
async fn it_obeys_the_contract() {
    let memory = Memory::new(BatchLimits {
        rows_max: 10,
        linger: Linger::HourOr(Duration::from_secs(3600)),
    });
    crate::sinks::contract::obeys(&memory).await;
}
