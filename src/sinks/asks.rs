//! The queries that a log backend answers, and their results.

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

/// The maximum number of rows on one page. All rows of a page are in memory together.
pub const PAGE_ROWS_MAX: usize = 4096;

/// Why a log backend returned no rows.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum LogBackendError {
    /// The log backend cannot be read. The message says why, and what to do.
    #[error("the log backend cannot be read: {0}")]
    Unavailable(String),
    /// The store is the log backend, and a call of the store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Too many accounts have rows in the time range to read the most recent rows of all. Contains the maximum number of
    /// accounts.
    #[error(
        "cannot read the newest rows: more than {0} accounts have rows in this time; name an account, or read the oldest rows first"
    )]
    TooManyAccounts(usize),
}

/// A query for one page of the rows that ended on one day, in the order of [`LogPosition`].
#[derive(Clone, Debug)]
pub struct LogPageQuery {
    /// The filter that returned rows must match.
    pub filter: LogFilter,
    /// The day on which the rows ended, in days since the Unix epoch (UTC).
    pub day: i64,
    /// The page begins with the first row after this position.
    pub after: LogPosition,
    /// The maximum number of rows, at most [`PAGE_ROWS_MAX`]. If several rows have the same position as the last row, the page
    /// has all of them, even beyond `limit`.
    pub limit: usize,
    /// When the reader began to read the log, of which this page is one part. Rows that are added after this time may be missing.
    pub began: Instant,
    /// When a log backend that scans rows stops. It scans some rows even if this time has passed. `None` means that it has no
    /// deadline.
    pub until: Option<Instant>,
}

/// One page of the rows of a day.
#[derive(Clone, Debug, Default)]
pub struct RowPage {
    /// The rows, in the order of [`LogPosition`]. If a row is stored twice, both copies are on the same page.
    pub rows: Vec<Row>,
    /// The lane and the number of each row of `rows`. Empty if the store is the log backend, because its rows have no numbers.
    pub numbers: Vec<(NodeId, u64)>,
    /// The position up to which all rows are on this page or an earlier one. `None` if the day has no further rows.
    pub next: Option<LogPosition>,
    /// The number of rows of the account at `next` that were scanned for this page. The next page need not scan them again.
    pub looked_at: usize,
}

/// A query for the most recent rows.
#[derive(Clone, Debug)]
pub struct NewestRowsQuery {
    /// The filter that returned rows must match.
    pub filter: LogFilter,
    /// Where the previous page ended; only older rows are read. `None` for the first page.
    pub from: Option<NewestCursor>,
    /// The maximum number of returned rows.
    pub limit: usize,
    /// When to stop scanning. Some rows are scanned even if this time has passed.
    pub until: Instant,
}

/// One page of the most recent rows.
#[derive(Clone, Debug, Default)]
pub struct NewestRows {
    /// The rows, ordered from the most recent to the oldest.
    pub rows: Vec<Row>,
    /// Where the next page of older rows begins. `None` if there are no older rows.
    pub next: Option<NewestCursor>,
    /// The number of rows that were scanned for this page.
    pub looked_at: usize,
}

/// A position in the log for reading from new to old: all newer rows have been read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NewestCursor {
    /// A position in the store's lists of rows.
    InLists(ListsCursor),
    /// A position in rows that are ordered by the time at which they ended.
    InSlices(SliceCursor),
}

/// A position in the store's lists of rows of one day. There is one list for each account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListsCursor {
    /// The day of the lists, in days since the Unix epoch (UTC).
    pub day: i64,
    /// The number of unread rows in the day's list of each account. An account is missing if nothing has been read of its list.
    pub left: BTreeMap<String, usize>,
}

/// A position in rows that are ordered by their end. The row at the position and all newer rows have been read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SliceCursor {
    /// When the row at the position ended, in milliseconds since the Unix epoch.
    pub time_ms: i64,
    /// The account of the row at the position. Empty if all rows that ended at `time_ms` have been read.
    pub account: SmolStr,
    /// The id of the request of the row at the position.
    pub request_id: SmolStr,
    /// The length of the time slice to be read next, in milliseconds.
    pub length_ms: i64,
}

/// The most recent rows of one key.
#[derive(Clone, Debug, Default)]
pub struct LatestKeyRows {
    /// The rows, ordered from the most recent to the oldest.
    pub rows: Vec<Row>,
    /// Whether nothing is missing: these are all rows of the requested days, or as many as the requested limit.
    pub is_complete: bool,
}

impl LogPageQuery {
    /// Creates a query for the first page of a day's rows.
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

    /// Creates a query for the first page of the rows of an account that ended on a day.
    pub fn for_day(account: &str, day: i64, limit: usize) -> Self {
        Self::new(LogFilter::of_day(account, day), day, limit)
    }
}

impl RowPage {
    /// Creates a page from rows that were read until there were `limit` or the day ended. Fewer than `limit` rows are the last
    /// page.
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
    /// The length of the first time slice that is read, in milliseconds.
    pub(super) const LENGTH_MS: i64 = 3_600_000;

    /// Creates a position at which all rows that ended at `time_ms` or later have been read.
    pub(super) fn at_time(time_ms: i64) -> Self {
        Self {
            time_ms,
            account: SmolStr::default(),
            request_id: SmolStr::default(),
            length_ms: Self::LENGTH_MS,
        }
    }

    /// Creates the position of a row, which has been read with all newer ones. `length_ms` is the length of the next time slice.
    pub(super) fn at_row(row: &Row, length_ms: i64) -> Self {
        Self {
            time_ms: row.time_ms,
            account: row.account.clone(),
            request_id: row.request_id.clone(),
            length_ms,
        }
    }

    /// Returns the sort key of the row at this position. Unread rows have a smaller [`time_key`].
    pub(super) fn sort_key(&self) -> (i64, &str, &str) {
        (self.time_ms, &self.account, &self.request_id)
    }
}

/// Returns the key by which rows are ordered by their end: end, account and request id.
pub(super) fn time_key(row: &Row) -> (i64, &str, &str) {
    (row.time_ms, &row.account, &row.request_id)
}

/// Returns whether the deadline `until` has passed. `None` is no deadline.
pub(super) fn has_passed(until: Option<Instant>) -> bool {
    until.is_some_and(|until| clock::instant() >= until)
}
