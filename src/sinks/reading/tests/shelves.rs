//! A home in memory that a test puts rows into.

use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use parking_lot::Mutex;

use super::*;
use crate::{
    domain::{
        keys::key::KeyId,
        ledger::NodeId,
    },
    sinks::asks::{Latest, LogPage, PageAsk},
};

/// A home that may be away.
#[derive(Default)]
pub(super) struct HomeShelf {
    rows: Mutex<Vec<Row>>,
    is_away: AtomicBool,
}

impl HomeShelf {
    pub(super) fn put(&self, row: Row) {
        self.rows.lock().push(row);
    }

    pub(super) fn go_away(&self) {
        self.is_away.store(true, Ordering::Relaxed);
    }
}

#[async_trait]
impl LogHome for HomeShelf {
    fn name(&self) -> &'static str {
        "shelf"
    }

    async fn page(&self, ask: &PageAsk) -> Result<LogPage, HomeError> {
        if self.is_away.load(Ordering::Relaxed) {
            return Err(HomeError::Unavailable("the shelf is away".to_owned()));
        }
        let filter = ask.filter.on(ask.day);
        let rows = self.rows.lock();
        let wanted = rows.iter().filter(|row| filter.takes(row));
        let mut behind: Vec<Row> = wanted
            .filter(|row| log_place::order(row) > ask.after.order())
            .cloned()
            .collect();
        behind.sort_by(|one, other| log_place::order(one).cmp(&log_place::order(other)));
        let tied = |row: &Row| behind.get(ask.limit - 1).is_some_and(|last| log_place::order(row) <= log_place::order(last));
        let count = behind.iter().filter(|row| tied(row)).count();
        if count > 0 {
            behind.truncate(count);
        }
        Ok(LogPage::of(behind, ask.limit))
    }

    async fn latest(&self, _: &str, _: &KeyId, _: RangeInclusive<i64>, _: usize) -> Result<Latest, HomeError> {
        unreachable!("pages are asked for")
    }

    async fn watermarks(&self) -> Result<Option<BTreeMap<NodeId, u64>>, HomeError> {
        unreachable!("pages are asked for")
    }
}
