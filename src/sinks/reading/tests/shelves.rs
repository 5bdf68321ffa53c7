//! A home in memory that a test puts rows into.

use std::{collections::BTreeMap, ops::RangeInclusive};

use async_trait::async_trait;
use parking_lot::Mutex;

use crate::{
    domain::{
        keys::KeyId,
        ledger::{NodeId, consumption::Row, log_query},
    },
    journal::NumberedRow,
    sinks::{LatestKeyRows, LogBackend, LogBackendError, LogPageQuery, RowPage},
};

/// A home that may be away, and that something may happen to whenever it is read.
#[derive(Default)]
pub(super) struct HomeShelf {
    rows: Mutex<Vec<Row>>,
    is_away: Mutex<bool>,
    happens: Mutex<Option<Box<dyn FnMut() + Send>>>,
}

impl HomeShelf {
    pub(super) fn put(&self, row: Row) {
        self.rows.lock().push(row);
    }

    pub(super) fn set_away(&self, is_away: bool) {
        *self.is_away.lock() = is_away;
    }

    /// From now on this happens before each page.
    pub(super) fn happens(&self, what: impl FnMut() + Send + 'static) {
        *self.happens.lock() = Some(Box::new(what));
    }

    fn sorted(&self) -> Vec<Row> {
        let mut rows = self.rows.lock().clone();
        rows.sort_by(|one, other| log_query::row_sort_key(one).cmp(&log_query::row_sort_key(other)));
        rows
    }
}

#[async_trait]
impl LogBackend for HomeShelf {
    fn name(&self) -> &'static str {
        "shelf"
    }

    async fn page(&self, ask: &LogPageQuery) -> Result<RowPage, LogBackendError> {
        let happens = self.happens.lock().take();
        if let Some(mut what) = happens {
            what();
            *self.happens.lock() = Some(what);
        }
        if *self.is_away.lock() {
            return Err(LogBackendError::Unavailable("the shelf is away".to_owned()));
        }
        let filter = ask.filter.within_day(ask.day);
        let is_wanted = |row: &Row| filter.matches(row) && log_query::row_sort_key(row) > ask.after.sort_key();
        let mut page = Vec::new();
        for row in self.sorted().into_iter().filter(is_wanted) {
            let is_tied = page
                .last()
                .is_some_and(|last| log_query::row_sort_key(last) == log_query::row_sort_key(&row));
            if page.len() >= ask.limit && !is_tied {
                break;
            }
            page.push(row);
        }
        let numbered = (1..)
            .zip(page)
            .map(|(number, row)| (NodeId::none(), NumberedRow { number, row }));
        Ok(RowPage::from_rows(numbered.collect(), ask.limit))
    }

    async fn latest(
        &self,
        account: &str,
        key: &KeyId,
        days: RangeInclusive<i64>,
        limit: usize,
    ) -> Result<LatestKeyRows, LogBackendError> {
        if *self.is_away.lock() {
            return Err(LogBackendError::Unavailable("the shelf is away".to_owned()));
        }
        let is_wanted = |row: &Row| {
            let day = row.time_ms.div_euclid(24 * 3_600_000);
            row.account == account && row.key_id == *key && days.contains(&day)
        };
        let rows = self.sorted().into_iter().rev().filter(is_wanted).take(limit);
        Ok(LatestKeyRows {
            rows: rows.collect(),
            is_complete: true,
        })
    }

    async fn watermarks(&self) -> Result<Option<BTreeMap<NodeId, u64>>, LogBackendError> {
        unreachable!("the log is only read")
    }
}
