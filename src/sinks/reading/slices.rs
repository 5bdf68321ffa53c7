//! The newest rows first where they have left the store: slice by slice of time, each read in the order of the log and turned round.
//! Slices are as long as a page takes little time and has few rows to spare.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use smol_str::SmolStr;

use super::{LogCursor, LogReadError, LogReading, account_day::is_over};
use crate::{
    domain::ledger::{consumption::Row, log_filter::LogFilter},
    edges::clock,
    sinks::home::PAGE_ROWS_MAX,
};

const HOUR_MS: i64 = 3_600_000;
/// The longest slice.
const LENGTH_MAX_MS: i64 = 31 * 24 * HOUR_MS;
/// The next slice is shorter than one that took longer than this,
const LONG: Duration = Duration::from_millis(75);
/// and longer than one that took less than this and had few rows.
const SHORT: Duration = Duration::from_millis(20);
/// How many times the rows that are wanted a slice may have, before the next one is shorter.
const ROWS_TO_SPARE: usize = 4;

/// A place among rows by time: what is newer has been read, and what is at it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SliceCursor {
    pub(crate) time_ms: i64,
    pub(crate) account: SmolStr,
    pub(crate) request_id: SmolStr,
    /// How long the next slice is.
    pub(crate) length_ms: i64,
}

/// What a look found.
#[derive(Debug, Default)]
pub(super) struct Slices {
    pub(super) rows: Vec<Row>,
    /// Where to go on.
    pub(super) next: Option<SliceCursor>,
    /// How many rows were looked at.
    pub(super) looked_at: usize,
}

impl SliceCursor {
    /// Behind all rows that ended at this time or later.
    pub(super) fn at(time_ms: i64) -> Self {
        Self {
            time_ms,
            account: SmolStr::default(),
            request_id: SmolStr::default(),
            length_ms: HOUR_MS,
        }
    }

    /// The first moment that nothing is left of.
    fn end_ms(&self) -> i64 {
        // Behind a row others of its moment may be left.
        let is_row = !self.account.is_empty();
        self.time_ms.saturating_add(i64::from(is_row))
    }

    /// Goes to where a row is.
    fn go_to(&mut self, row: &Row) {
        self.time_ms = row.time_ms;
        self.account.clone_from(&row.account);
        self.request_id.clone_from(&row.request_id);
    }

    fn order(&self) -> (i64, &str, &str) {
        (self.time_ms, &self.account, &self.request_id)
    }

    /// How long the slice after one is that took so long and had so many rows, where so many were wanted.
    fn adapt(&mut self, took: Duration, rows: usize, wanted: usize) {
        let length = if took > LONG || rows > ROWS_TO_SPARE * wanted {
            self.length_ms / 2
        } else if took < SHORT && rows < wanted {
            self.length_ms.saturating_mul(2)
        } else {
            self.length_ms
        };
        self.length_ms = length.clamp(1, LENGTH_MAX_MS);
    }
}

/// What rows are compared by.
fn order(row: &Row) -> (i64, &str, &str) {
    (row.time_ms, &row.account, &row.request_id)
}

impl LogReading {
    /// The newest rows behind a place, wherever they are, until there are `limit` or the time is over.
    pub(super) async fn newest_by_slices(
        self: &Arc<Self>,
        filter: &LogFilter,
        mut at: SliceCursor,
        limit: usize,
        until: Instant,
    ) -> Result<Slices, LogReadError> {
        let mut found = Slices::default();
        at.length_ms = at.length_ms.clamp(1, LENGTH_MAX_MS);
        loop {
            let end = at.end_ms().min(filter.until_ms);
            let begin = end.saturating_sub(at.length_ms).max(filter.since_ms);
            if begin >= end {
                return Ok(found);
            }
            let slice = LogFilter {
                since_ms: begin,
                until_ms: end,
                ..filter.clone()
            };
            let (began, wanted) = (clock::instant(), limit - found.rows.len());
            let (rows, count) = self.newest_of(slice, &at, wanted).await?;
            found.looked_at += count;
            at.adapt(clock::instant().saturating_duration_since(began), count, wanted);
            let is_full = rows.len() == wanted;
            match rows.last().filter(|_| is_full) {
                Some(last) => at.go_to(last),
                None => {
                    let length_ms = at.length_ms;
                    at = SliceCursor {
                        length_ms,
                        ..SliceCursor::at(begin)
                    };
                }
            }
            found.rows.extend(rows);
            if !is_full && begin == filter.since_ms {
                return Ok(found);
            }
            if is_full || is_over(Some(until)) {
                found.next = Some(at);
                return Ok(found);
            }
        }
    }

    /// The newest rows of a slice behind a place, the newest first, and how many there are in all.
    async fn newest_of(
        self: &Arc<Self>,
        slice: LogFilter,
        at: &SliceCursor,
        wanted: usize,
    ) -> Result<(Vec<Row>, usize), LogReadError> {
        let from = LogCursor::before(&slice);
        let mut reading = self.rows(slice, from, false);
        let (mut newest, mut count) = (Vec::new(), 0);
        while reading.cursor().is_some() {
            let rows = reading.next(PAGE_ROWS_MAX).await?;
            let behind = rows.into_iter().filter(|row| order(row) < at.order());
            let before = newest.len();
            newest.extend(behind);
            count += newest.len() - before;
            newest.sort_by(|one, other| order(other).cmp(&order(one)));
            newest.truncate(wanted);
        }
        Ok((newest, count))
    }
}
