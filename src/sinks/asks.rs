//! The queries of a log backend, and their results.

use std::{collections::BTreeMap, time::Instant};

use smol_str::SmolStr;
use thiserror::Error;

use crate::{
    domain::ledger::{
        NodeId,
        consumption::Row,
        log_query::{LogFilter, LogPosition},
    },
    edges::clock,
    journal::NumberedRow,
    store::StoreError,
};

/// The maximum number of rows on one page: they are in memory together.
pub const PAGE_ROWS_MAX: usize = 4096;

/// Why a log backend returns no rows.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum LogBackendError {
    /// It cannot be read. The text says why, and what to do.
    #[error("the log backend cannot be read: {0}")]
    Unavailable(String),
    /// The store, which is the log backend, has failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The newest rows cannot be read of more accounts than this at once.
    #[error("more than {0} accounts have rows in this time: name an account, or read the oldest rows first")]
    TooManyAccounts(usize),
}

/// A query for a page of a day's rows, in the order of [`LogPosition`].
#[derive(Clone, Debug)]
pub struct LogPageQuery {
    /// The filter of the rows.
    pub filter: LogFilter,
    /// The day on which they ended: days since the Unix epoch, UTC.
    pub day: i64,
    /// The position after which the page begins.
    pub after: LogPosition,
    /// The maximum number of rows, at most [`PAGE_ROWS_MAX`]. Further rows at the position of the last one are part of the page.
    pub limit: usize,
    /// When the reading began that this page is part of. Later rows may be missing.
    pub began: Instant,
    /// When a log backend that scans rows may stop. It scans some rows in any case.
    pub until: Option<Instant>,
}

/// A page of a day's rows.
#[derive(Clone, Debug, Default)]
pub struct RowPage {
    /// The rows in the order of [`LogPosition`]. A row that exists twice is returned twice, on one page.
    pub rows: Vec<Row>,
    /// The lane and number of each row; empty if the log backend is the store.
    pub numbers: Vec<(NodeId, u64)>,
    /// The position up to which all rows are on this page or an earlier one; `None` if the day has no further rows.
    pub next: Option<LogPosition>,
    /// The scanned rows of the account at `next`, which the next page need not scan again.
    pub looked_at: usize,
}

/// A query for the newest rows.
#[derive(Clone, Debug)]
pub struct NewestRowsQuery {
    /// The filter of the rows.
    pub filter: LogFilter,
    /// The position after which older rows are read; `None` for all rows.
    pub from: Option<NewestCursor>,
    /// The maximum number of rows.
    pub limit: usize,
    /// When to stop scanning. Some rows are scanned in any case.
    pub until: Instant,
}

/// A page of the newest rows.
#[derive(Clone, Debug, Default)]
pub struct NewestRows {
    /// The rows, the newest first.
    pub rows: Vec<Row>,
    /// The position of older rows; `None` if there are none.
    pub next: Option<NewestCursor>,
    /// The number of scanned rows.
    pub looked_at: usize,
}

/// A position among the newest rows: newer rows have been read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NewestCursor {
    /// In the store's lists.
    InLists(ListsCursor),
    /// Among rows ordered by their end.
    InSlices(SliceCursor),
}

/// A position in the lists of a day.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListsCursor {
    /// Days since the Unix epoch, UTC.
    pub day: i64,
    /// The number of the day's unread rows, for each account of which some were read.
    pub left: BTreeMap<String, usize>,
}

/// A position among rows ordered by their end: the row at it and newer ones have been read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SliceCursor {
    /// When the row ended, in milliseconds since the Unix epoch.
    pub time_ms: i64,
    /// The row's account; empty if all rows that ended then have been read.
    pub account: SmolStr,
    /// The row's request.
    pub request_id: SmolStr,
    /// The length of the next time slice.
    pub length_ms: i64,
}

/// The last rows of a key.
#[derive(Clone, Debug, Default)]
pub struct LatestKeyRows {
    /// The rows, the latest first.
    pub rows: Vec<Row>,
    /// Whether these are all rows of the days, or as many as were requested.
    pub is_complete: bool,
}

impl LogPageQuery {
    /// The first page of a day's rows.
    pub fn new(filter: LogFilter, day: i64, limit: usize) -> Self {
        Self {
            filter,
            day,
            after: LogPosition::default(),
            limit,
            began: clock::instant(),
            until: None,
        }
    }

    /// The first page of the rows of an account and day.
    pub fn for_day(account: &str, day: i64, limit: usize) -> Self {
        Self::new(LogFilter::of_day(account, day), day, limit)
    }
}

impl RowPage {
    /// A page of a log backend that reads until it has `limit` rows or the day ends.
    pub(super) fn from_rows(numbered: Vec<(NodeId, NumberedRow)>, limit: usize) -> Self {
        let split = numbered
            .into_iter()
            .map(|(lane, NumberedRow { number, row })| (row, (lane, number)));
        let (rows, numbers): (Vec<Row>, _) = split.unzip();
        let last = rows.last().filter(|_| rows.len() >= limit);
        Self {
            next: last.map(LogPosition::of),
            rows,
            numbers,
            looked_at: 0,
        }
    }
}

impl SliceCursor {
    /// The length of the first slice.
    pub(super) const LENGTH_MS: i64 = 3_600_000;

    /// The position after all rows that ended at this time or later.
    pub(super) fn at_time(time_ms: i64) -> Self {
        Self {
            time_ms,
            account: SmolStr::default(),
            request_id: SmolStr::default(),
            length_ms: Self::LENGTH_MS,
        }
    }

    /// The position of a row.
    pub(super) fn at_row(row: &Row, length_ms: i64) -> Self {
        Self {
            time_ms: row.time_ms,
            account: row.account.clone(),
            request_id: row.request_id.clone(),
            length_ms,
        }
    }

    /// Its sort key: rows after it have smaller ones ([`time_key`]).
    pub(super) fn sort_key(&self) -> (i64, &str, &str) {
        (self.time_ms, &self.account, &self.request_id)
    }
}

/// The sort key of rows by their end.
pub(super) fn time_key(row: &Row) -> (i64, &str, &str) {
    (row.time_ms, &row.account, &row.request_id)
}

/// Whether this time has passed.
pub(super) fn has_passed(until: Option<Instant>) -> bool {
    until.is_some_and(|until| clock::instant() >= until)
}
