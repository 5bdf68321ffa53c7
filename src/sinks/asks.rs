//! What a home of the log is asked for, and what it answers.

use std::{collections::BTreeMap, time::Instant};

use smol_str::SmolStr;
use thiserror::Error;

use crate::{
    domain::ledger::{NodeId, consumption::Row, log_filter::LogFilter, log_place::LogPlace},
    edges::clock,
    journal::NumberedRow,
    store::StoreError,
};

/// The most rows of one page: they are in memory together.
pub const PAGE_ROWS_MAX: usize = 4096;

/// Why a home gives no rows.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum HomeError {
    /// It cannot be read. Says why, and what to do.
    #[error("the log's home cannot be read: {0}")]
    Unavailable(String),
    /// The store, which is the home, does not answer.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The newest rows of more accounts than this are not looked for at once.
    #[error("more than {0} accounts have rows in this time: name an account, or read the oldest rows first")]
    TooManyAccounts(usize),
}

/// Asks for some rows of a day, in the order of [`LogPlace`].
#[derive(Clone, Debug)]
pub struct PageAsk {
    /// Which rows.
    pub filter: LogFilter,
    /// The day that they ended on: days since the Unix epoch, UTC.
    pub day: i64,
    /// Rows behind this place.
    pub after: LogPlace,
    /// At most so many, and at most [`PAGE_ROWS_MAX`]. Further rows at the place of the last one are part of the page.
    pub limit: usize,
    /// When the reading began that this page is part of. Rows that have come since need not be in it.
    pub began: Instant,
    /// A home that looks through rows that the filter does not take may stop then. It looks at some of them in any case.
    pub until: Option<Instant>,
}

/// Some rows of a day.
#[derive(Clone, Debug, Default)]
pub struct LogPage {
    /// In the order of [`LogPlace`]. A row that is there twice comes twice, in one page.
    pub rows: Vec<Row>,
    /// Of each row the lane that has brought it, and its number there. None where the home is the store.
    pub numbers: Vec<(NodeId, u64)>,
    /// All rows up to this place are in this page or in those before it. `None`: the day has no others.
    pub next: Option<LogPlace>,
    /// The rows of the account at `next` that were looked at, and that the next page need not look at again.
    pub looked_at: usize,
}

/// Asks for the newest rows.
#[derive(Clone, Debug)]
pub struct NewestAsk {
    /// Which rows.
    pub filter: LogFilter,
    /// Rows that are older than those at this place; `None`: all.
    pub from: Option<NewestCursor>,
    /// At most so many.
    pub limit: usize,
    /// When to stop looking. Some rows are looked at in any case.
    pub until: Instant,
}

/// Rows, the newest first.
#[derive(Clone, Debug, Default)]
pub struct Newest {
    /// The newest first.
    pub rows: Vec<Row>,
    /// Where older ones are; `None`: there are none.
    pub next: Option<NewestCursor>,
    /// How many rows were looked at.
    pub looked_at: usize,
}

/// A place among rows, the newest first: those that are newer have been read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NewestCursor {
    /// In the store's lists.
    InLists(ListsCursor),
    /// Among rows by the time that they ended.
    InSlices(SliceCursor),
}

/// A place in the lists of a day.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListsCursor {
    /// Days since the Unix epoch, UTC.
    pub day: i64,
    /// How many of the day's rows are left, of each account that some were read of.
    pub left: BTreeMap<String, usize>,
}

/// A place among rows by time: what is newer has been read, and the row at it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SliceCursor {
    /// When the row ended, in milliseconds since the Unix epoch.
    pub time_ms: i64,
    /// Its account; empty: all rows that ended then have been read.
    pub account: SmolStr,
    /// Its request.
    pub request_id: SmolStr,
    /// The length of the next slice of time.
    pub length_ms: i64,
}

/// The last rows of a key.
#[derive(Clone, Debug, Default)]
pub struct Latest {
    /// The latest first.
    pub rows: Vec<Row>,
    /// There are no others of these days, or as many as were asked for.
    pub is_whole: bool,
}

impl PageAsk {
    /// The first rows of a day that a filter takes.
    pub fn new(filter: LogFilter, day: i64, limit: usize) -> Self {
        Self {
            filter,
            day,
            after: LogPlace::default(),
            limit,
            began: clock::instant(),
            until: None,
        }
    }

    /// The first rows of an account that ended on a day.
    pub fn of_day(account: &str, day: i64, limit: usize) -> Self {
        Self::new(LogFilter::of_day(account, day), day, limit)
    }
}

impl LogPage {
    /// A page of a home that looks until it has `limit` rows or the day ends.
    pub(super) fn of(numbered: Vec<(NodeId, NumberedRow)>, limit: usize) -> Self {
        let split = numbered
            .into_iter()
            .map(|(lane, NumberedRow { number, row })| (row, (lane, number)));
        let (rows, numbers): (Vec<Row>, _) = split.unzip();
        let last = rows.last().filter(|_| rows.len() >= limit);
        Self {
            next: last.map(LogPlace::of),
            rows,
            numbers,
            looked_at: 0,
        }
    }
}

impl SliceCursor {
    /// The length of a slice as long as nothing is known of those before it.
    pub(super) const LENGTH_MS: i64 = 3_600_000;

    /// Behind all rows that ended at this time or later.
    pub(super) fn at(time_ms: i64) -> Self {
        Self {
            time_ms,
            account: SmolStr::default(),
            request_id: SmolStr::default(),
            length_ms: Self::LENGTH_MS,
        }
    }

    /// At a row.
    pub(super) fn of(row: &Row, length_ms: i64) -> Self {
        Self {
            time_ms: row.time_ms,
            account: row.account.clone(),
            request_id: row.request_id.clone(),
            length_ms,
        }
    }

    /// What rows behind it have less of ([`by_time`]).
    pub(super) fn order(&self) -> (i64, &str, &str) {
        (self.time_ms, &self.account, &self.request_id)
    }
}

/// What rows are compared by where the newest come first.
pub(super) fn by_time(row: &Row) -> (i64, &str, &str) {
    (row.time_ms, &row.account, &row.request_id)
}

/// Whether this time has come.
pub(super) fn is_over(until: Option<Instant>) -> bool {
    until.is_some_and(|until| clock::instant() >= until)
}
