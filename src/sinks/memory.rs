//! A sink in memory: the model that the others obey.

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
    sinks::{
        batching::{Batching, Linger},
        contract::Place,
        sink::{Batch, Sink, SinkError},
    },
};

/// What one lane has: its watermark and its rows.
#[derive(Clone, Debug, Default)]
struct Lane {
    watermark: u64,
    rows: Vec<Arc<NumberedRow>>,
}

/// What is kept, and what goes wrong.
#[derive(Debug)]
pub(crate) struct Memory {
    lanes: Mutex<BTreeMap<NodeId, Lane>>,
    batching: Batching,
    /// What the next calls to `append` do instead of succeeding.
    faults: Mutex<Vec<Fault>>,
    /// Whether it can say what it has.
    is_away: AtomicBool,
    /// Whether it takes nothing.
    refuses: AtomicBool,
}

/// How a call fails.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    /// Nothing has happened.
    Before,
    /// All has happened, and nobody is told.
    Behind,
    /// The sink forgets the lane.
    Forgets,
}

/// What [`Sink::watermark`] and [`Sink::append`] say of a sink that cannot be reached.
fn away<T>() -> Result<T, SinkError> {
    Err(SinkError::Unavailable("it is away".to_owned()))
}

impl Memory {
    pub(crate) fn new(batching: Batching) -> Arc<Self> {
        Arc::new(Self {
            lanes: Mutex::default(),
            batching,
            faults: Mutex::default(),
            is_away: AtomicBool::new(false),
            refuses: AtomicBool::new(false),
        })
    }

    /// The next call fails so; several come in the order in which they were asked for.
    pub(crate) fn fail(&self, fault: Fault) {
        self.faults.lock().insert(0, fault);
    }

    /// From now on it can, or cannot, be asked what it has.
    pub(crate) fn set_away(&self, is_away: bool) {
        self.is_away.store(is_away, Ordering::Relaxed);
    }

    /// From now on it takes batches, or refuses each.
    pub(crate) fn set_refusing(&self, refuses: bool) {
        self.refuses.store(refuses, Ordering::Relaxed);
    }

    /// The rows of a lane.
    pub(crate) fn of(&self, node: &NodeId) -> Vec<Arc<NumberedRow>> {
        self.lanes.lock().get(node).cloned().unwrap_or_default().rows
    }
}

#[async_trait]
impl Sink for Memory {
    fn name(&self) -> &'static str {
        "memory"
    }

    fn batching(&self) -> Batching {
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
    let memory = Memory::new(Batching {
        rows_max: 10,
        linger: Linger::HourOr(Duration::from_secs(3600)),
    });
    crate::sinks::contract::obeys(&memory).await;
}
