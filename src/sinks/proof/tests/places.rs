//! Places of rows that change while they are read.

use std::{
    collections::BTreeMap,
    ops::RangeInclusive,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use async_trait::async_trait;
use parking_lot::Mutex;

use crate::{
    domain::{
        keys::KeyId,
        ledger::{LogDay, NodeId, Step, consumption::Row, log_query},
    },
    journal::NumberedRow,
    sinks::{Batch, BatchLimits, LatestKeyRows, LogBackend, LogBackendError, LogPageQuery, RowPage, Sink, SinkError},
    store::{
        StoreError,
        ledger::{LedgerStore as _, LogLists, contract::memory::MemoryLedger},
    },
};

/// What happens to a home.
type Happens = Box<dyn FnOnce(&Shelf) + Send>;

/// A home that something may happen to when a page was read.
#[derive(Default)]
pub(super) struct Shelf {
    rows: Mutex<Vec<(NodeId, NumberedRow)>>,
    upto: Mutex<BTreeMap<NodeId, u64>>,
    happens: Mutex<Option<Happens>>,
    /// How often it was asked how far it is.
    pub(super) asked: AtomicUsize,
}

impl Shelf {
    /// Rows come, and with them the lanes are this far.
    pub(super) fn bring(&self, rows: impl IntoIterator<Item = (NodeId, NumberedRow)>, upto: u64) {
        for (lane, row) in rows {
            self.upto.lock().insert(lane.clone(), upto);
            self.rows.lock().push((lane, row));
        }
    }

    /// This happens once, behind the next page.
    pub(super) fn happens(&self, what: impl FnOnce(&Self) + Send + 'static) {
        *self.happens.lock() = Some(Box::new(what));
    }
}

#[async_trait]
impl LogBackend for Shelf {
    fn name(&self) -> &'static str {
        "shelf"
    }

    async fn page(&self, ask: &LogPageQuery) -> Result<RowPage, LogBackendError> {
        let filter = ask.filter.within_day(ask.day);
        let mut rows = self.rows.lock().clone();
        rows.sort_by(|(_, one), (_, other)| {
            log_query::row_sort_key(&one.row).cmp(&log_query::row_sort_key(&other.row))
        });
        rows.retain(|(_, row)| filter.matches(&row.row) && log_query::row_sort_key(&row.row) > ask.after.sort_key());
        rows.truncate(ask.limit);
        let page = RowPage::from_rows(rows, ask.limit);
        let happens = self.happens.lock().take();
        if let Some(what) = happens {
            what(self);
        }
        Ok(page)
    }

    async fn latest(
        &self,
        _: &str,
        _: &KeyId,
        _: RangeInclusive<i64>,
        _: usize,
    ) -> Result<LatestKeyRows, LogBackendError> {
        unreachable!("days are read")
    }

    async fn watermarks(&self) -> Result<Option<BTreeMap<NodeId, u64>>, LogBackendError> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        Ok(Some(self.upto.lock().clone()))
    }
}

#[async_trait]
impl Sink for Shelf {
    fn name(&self) -> &'static str {
        "shelf"
    }

    fn batching(&self) -> BatchLimits {
        unreachable!("nothing is fed")
    }

    async fn watermark(&self, _: &NodeId) -> Result<u64, SinkError> {
        unreachable!("nothing is fed")
    }

    async fn append(&self, _: &Batch) -> Result<(), SinkError> {
        unreachable!("nothing is fed")
    }
}

/// Lists of a ledger that counts a further row whenever a list was read.
pub(super) struct GrowingLists {
    ledger: Arc<MemoryLedger>,
    node: NodeId,
    /// The last one first.
    further: Mutex<Vec<Step>>,
}

impl GrowingLists {
    /// These steps of a node are still to come.
    pub(super) fn new(ledger: Arc<MemoryLedger>, (node, mut further): (NodeId, Vec<Step>)) -> Self {
        further.reverse();
        Self {
            ledger,
            node,
            further: Mutex::new(further),
        }
    }
}

#[async_trait]
impl LogLists for GrowingLists {
    async fn rows(&self, account: &str, day: i64, skip: usize, limit: usize) -> Result<Vec<Row>, StoreError> {
        let rows = self.ledger.rows(account, day, skip, limit).await?;
        let next = self.further.lock().pop();
        if let Some(step) = next {
            self.ledger.apply(&self.node, account, &[step], 0).await?;
        }
        Ok(rows)
    }

    async fn log_days(&self, account: &str, days: RangeInclusive<i64>) -> Result<Vec<LogDay>, StoreError> {
        self.ledger.log_days(account, days).await
    }

    async fn put_rows(&self, _: &str, _: i64, _: &[Row]) -> Result<bool, StoreError> {
        unreachable!("lists are read")
    }

    async fn remove(&self, _: &str, _: &LogDay) -> Result<bool, StoreError> {
        unreachable!("lists are read")
    }
}
