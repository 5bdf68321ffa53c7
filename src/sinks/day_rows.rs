//! The rows of an account that ended on a day, page by page: those of a home, and those of a store's list.

use std::{
    collections::HashSet,
    hash::{BuildHasher, RandomState},
};

use crate::{
    domain::ledger::consumption::Row,
    sinks::{
        asks::{HomeError, LogPage, PAGE_ROWS_MAX, PageAsk},
        home::LogHome,
    },
    store::{
        StoreError,
        ledger::{LOG_ROWS_MAX, LogLists},
    },
};

/// The most rows whose requests are remembered at once: their hashes are in memory meanwhile, some 16 MB.
pub(super) const ROWS_AT_ONCE: usize = 1_000_000;

/// The rows that a home has of a day, each as often as it is there.
#[derive(Clone)]
pub(super) struct DayRows<'h> {
    home: &'h dyn LogHome,
    place: (&'h str, i64),
    ask: PageAsk,
    ends: bool,
}

impl<'h> DayRows<'h> {
    /// The first ones of an account and day.
    pub(super) fn new(home: &'h dyn LogHome, (account, day): (&'h str, i64)) -> Self {
        Self {
            home,
            place: (account, day),
            ask: PageAsk::of_day(account, day, PAGE_ROWS_MAX),
            ends: false,
        }
    }

    /// The next ones: `limit` or more, or else the last.
    pub(super) async fn next(&mut self, limit: usize) -> Result<LogPage, HomeError> {
        if self.ends {
            return Ok(LogPage::default());
        }
        self.ask.limit = limit.min(PAGE_ROWS_MAX);
        let mut page = self.home.page(&self.ask).await?;
        match page.next.take() {
            Some(next) => self.ask.after = next,
            None => self.ends = true,
        }
        Ok(page)
    }

    /// Whether the last ones have been read.
    pub(super) fn has_ended(&self) -> bool {
        self.ends
    }
}

/// Shows each row that a home has of an account and day.
pub(super) async fn each_row(
    home: &dyn LogHome,
    place: (&str, i64),
    mut visit: impl FnMut(&Row) + Send,
) -> Result<(), HomeError> {
    let mut rows = DayRows::new(home, place);
    while !rows.has_ended() {
        rows.next(PAGE_ROWS_MAX).await?.rows.iter().for_each(&mut visit);
    }
    Ok(())
}

/// Shows each row of a store's list of an account and day, without the first `skip`; says how many the list has with these.
pub(super) async fn each_listed(
    lists: &dyn LogLists,
    (account, day): (&str, i64),
    skip: usize,
    mut visit: impl FnMut(&Row) + Send,
) -> Result<usize, StoreError> {
    let mut read = skip;
    loop {
        let rows = lists.rows(account, day, read, LOG_ROWS_MAX).await?;
        rows.iter().for_each(&mut visit);
        read += rows.len();
        if rows.len() < LOG_ROWS_MAX {
            return Ok(read);
        }
    }
}

/// Rows that a home lacks, out of those that were looked for.
pub(super) struct Missing {
    hashes: RandomState,
    ids: HashSet<u64>,
}

impl Missing {
    /// Looks in a home for the next rows of another place, for `wanted` of them or a few more.
    pub(super) async fn find(home: &dyn LogHome, rows: &mut DayRows<'_>, wanted: usize) -> Result<Self, HomeError> {
        let mut missing = Self {
            hashes: RandomState::new(),
            ids: HashSet::new(),
        };
        let mut looked_for = 0;
        while looked_for < wanted && !rows.has_ended() {
            let page = rows.next(wanted - looked_for).await?;
            looked_for += page.rows.len();
            let ids = page.rows.iter().map(|row| missing.hashes.hash_one(&row.request_id));
            missing.ids.extend(ids);
        }
        if !missing.is_empty() {
            each_row(home, rows.place, |row| {
                missing.remove(row);
            })
            .await?;
        }
        Ok(missing)
    }

    /// Whether the home lacks none.
    pub(super) fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// Whether the home lacks this row of those that were looked for. It is asked about once: a row that is about to be brought is
    /// not missing any more.
    pub(super) fn remove(&mut self, row: &Row) -> bool {
        self.ids.remove(&self.hashes.hash_one(&row.request_id))
    }
}
