//! Reads the consumption log from all places that have its rows. Each row is returned once. The rows of all places are merged
//! into a single order.

mod log_rows;
#[cfg(test)]
mod tests;

use std::{
    ops::RangeInclusive,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use futures_util::future::BoxFuture;
use thiserror::Error;

use crate::{
    domain::{
        keys::KeyId,
        ledger::{
            consumption::Row,
            log_query::{self, LogFilter},
        },
    },
    edges::clock,
    journal::NumberedRow,
    sinks::{
        LatestKeyRows, LogBackend, LogBackendError, LogPageQuery, NewestCursor, NewestRows, NewestRowsQuery,
        PAGE_ROWS_MAX, RowPage, SliceCursor, has_passed,
        tail::{LogTails, TailBehind},
        time_key,
    },
    store::StoreError,
};

pub(crate) use crate::sinks::reading::log_rows::{LogCursor, LogRows};

/// The reason why rows could not be read. No row is missing between the rows that were returned before the error.
#[derive(Debug, Error)]
pub(crate) enum LogReadError {
    #[error(
        "{0}; no rows are returned, because the result would be incomplete; try again when the log backend can be read"
    )]
    Home(LogBackendError),
    #[error(
        "{0}; no rows are returned, because the result would be incomplete; try again, or check the metric weir_log_sink_behind_seconds"
    )]
    Behind(#[from] TailBehind),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    TooManyAccounts(LogBackendError),
}

impl From<LogBackendError> for LogReadError {
    fn from(error: LogBackendError) -> Self {
        match error {
            LogBackendError::Store(error) => Self::Store(error),
            error @ LogBackendError::Unavailable(_) => Self::Home(error),
            error @ LogBackendError::TooManyAccounts(_) => Self::TooManyAccounts(error),
        }
    }
}

/// Reads the rows of the log backend, the rows of the former log backend, and the rows that the log backend has not
/// acknowledged.
pub(crate) struct LogReader {
    home: Arc<dyn LogBackend>,
    /// The former log backend; `None` if there is none. A row is copied to the current one before it is removed from the former
    /// one.
    former: Option<Arc<dyn LogBackend>>,
    /// The rows that the log backend has not acknowledged. `None` if the log backend has rows as soon as they are settled.
    tails: Option<LogTails>,
    verified_at: AtomicI64,
}

impl LogReader {
    /// Creates a reader of a log backend that has rows as soon as they are settled.
    pub(crate) fn new(home: Arc<dyn LogBackend>, former: Option<Arc<dyn LogBackend>>) -> Self {
        Self {
            home,
            former,
            tails: None,
            verified_at: AtomicI64::new(0),
        }
    }

    /// Adds the rows of `tails`, which the log backend has not acknowledged yet.
    pub(crate) fn with_tails(self, tails: LogTails) -> Self {
        Self {
            tails: Some(tails),
            ..self
        }
    }

    /// Records that yesterday's rows of all accounts matched the daily sums. `at` is the time of the proof, in seconds since the
    /// Unix epoch.
    pub(crate) fn record_verified(&self, at: i64) {
        self.verified_at.fetch_max(at, Ordering::Relaxed);
    }

    /// Returns the most recent time that [`LogReader::record_verified`] has recorded, in seconds since the Unix epoch. Returns 0
    /// if no time has been recorded since the start of the process.
    pub(crate) fn verified_at(&self) -> i64 {
        self.verified_at.load(Ordering::Relaxed)
    }

    /// Returns the matching rows that the log backend has not acknowledged. Must be called before the log backend is read.
    async fn pending_rows(&self, filter: &LogFilter) -> Result<Vec<Arc<NumberedRow>>, LogReadError> {
        match &self.tails {
            Some(tails) => Ok(tails.snapshot(filter).await?),
            None => Ok(Vec::new()),
        }
    }

    /// Returns the log backends to read. The former one comes first, because rows move from it to the current one.
    fn backends(&self) -> impl Iterator<Item = &Arc<dyn LogBackend>> {
        self.former.iter().chain(std::iter::once(&self.home))
    }
}

impl LogReader {
    /// Returns a key's most recent rows, among those whose requests ended on one of `days`. If one of the log backends could not
    /// be read, returns the rows of all other places, together with this log backend's error.
    pub(crate) async fn latest(
        &self,
        account: &str,
        key: &KeyId,
        days: RangeInclusive<i64>,
        limit: usize,
    ) -> Result<(LatestKeyRows, Option<LogBackendError>), LogReadError> {
        let filter = LogFilter {
            key: Some(key.clone()),
            since_ms: LogFilter::of_day(account, *days.start()).since_ms,
            ..LogFilter::of_day(account, *days.end())
        };
        let on_their_way = self.pending_rows(&filter).await?;
        let mut rows: Vec<Row> = on_their_way.iter().map(|row| row.row.clone()).collect();
        let (mut is_whole, mut not_read) = (true, None);
        for home in self.backends() {
            match home.latest(account, key, days.clone(), limit).await {
                Ok(of_home) => {
                    rows.extend(of_home.rows);
                    is_whole &= of_home.is_complete;
                }
                Err(LogBackendError::Store(error)) => return Err(error.into()),
                Err(error) => not_read = Some(error),
            }
        }
        // The result has each row once, the most recent first.
        rows.sort_by(|one, other| log_query::row_sort_key(other).cmp(&log_query::row_sort_key(one)));
        rows.dedup_by(|one, other| log_query::row_sort_key(one) == log_query::row_sort_key(other));
        rows.truncate(limit);
        is_whole = not_read.is_none() && (is_whole || rows.len() == limit);
        Ok((
            LatestKeyRows {
                rows,
                is_complete: is_whole,
            },
            not_read,
        ))
    }
}

impl LogReader {
    /// Returns a page of the most recent rows. If the log backend has all rows, its own method reads the page. Otherwise all
    /// places are read slice by slice. A slice contains the rows whose requests ended within a range of time.
    pub(crate) async fn newest(&self, mut ask: NewestRowsQuery) -> Result<NewestRows, LogReadError> {
        if self.tails.is_none() && self.former.is_none() {
            return Ok(self.home.newest(&ask).await?);
        }
        ask.from = Some(NewestCursor::InSlices(start(&ask)));
        let on_their_way = self.pending_rows(&ask.filter).await?;
        let mut parts = vec![newest_of(on_their_way, &ask)];
        for home in self.backends() {
            parts.push(home.newest(&ask).await?);
        }
        Ok(merge_newest(parts, ask.limit))
    }
}

/// Returns the most recent of some unordered rows, as a page.
fn newest_of(mut rows: Vec<Arc<NumberedRow>>, ask: &NewestRowsQuery) -> NewestRows {
    if let Some(NewestCursor::InSlices(at)) = &ask.from {
        rows.retain(|row| time_key(&row.row) < at.sort_key());
    }
    let looked_at = rows.len();
    if looked_at > ask.limit {
        rows.select_nth_unstable_by(ask.limit, |one, other| time_key(&other.row).cmp(&time_key(&one.row)));
    }
    // One row more than requested, so that the next page has a position.
    rows.truncate(ask.limit + 1);
    NewestRows {
        rows: rows.iter().map(|row| row.row.clone()).collect(),
        next: None,
        looked_at,
    }
}

/// Merges pages of the most recent rows from several places. Each row is returned once. If a place has unread rows, all rows that
/// are older than the end of its page are left out, because some of the unread rows may be newer.
fn merge_newest(parts: Vec<NewestRows>, limit: usize) -> NewestRows {
    let mut all = NewestRows::default();
    let mut up_to: Option<SliceCursor> = None;
    for part in parts {
        all.rows.extend(part.rows);
        all.looked_at += part.looked_at;
        if let Some(NewestCursor::InSlices(at)) = part.next
            && up_to.as_ref().is_none_or(|up_to| at.sort_key() > up_to.sort_key())
        {
            up_to = Some(at);
        }
    }
    if let Some(up_to) = &up_to {
        all.rows.retain(|row| time_key(row) >= up_to.sort_key());
    }
    all.rows.sort_by(|one, other| time_key(other).cmp(&time_key(one)));
    all.rows.dedup_by(|one, other| time_key(one) == time_key(other));
    if all.rows.len() > limit {
        all.rows.truncate(limit);
        let length_ms = up_to.as_ref().map_or(SliceCursor::LENGTH_MS, |at| at.length_ms);
        up_to = all.rows.last().map(|last| SliceCursor::at_row(last, length_ms));
    }
    all.next = up_to.map(NewestCursor::InSlices);
    all
}

const HOUR_MS: i64 = 3_600_000;
const DAY_MS: i64 = 24 * HOUR_MS;
/// The maximum length of a slice, in milliseconds.
const LENGTH_MAX_MS: i64 = 31 * DAY_MS;
/// If reading a slice took longer than this, the next slice covers a shorter range of time, but at least an hour. Reading a page
/// from a bucket has a minimum cost, however short the slice is.
const LONG: Duration = Duration::from_millis(75);
/// If reading a slice took less than this and found few rows, the next slice covers a longer range of time.
const SHORT: Duration = Duration::from_millis(20);
/// A factor. If a slice has more rows than the number of wanted rows times this factor, the next slice is shorter.
const ROWS_TO_SPARE: usize = 4;

/// Returns the most recent rows, until there are enough or the query's time is over. `page` reads a page of the log backend.
pub(super) async fn newest<'h, P>(ask: &NewestRowsQuery, page: P) -> Result<NewestRows, LogBackendError>
where
    P: Fn(LogPageQuery) -> BoxFuture<'h, Result<RowPage, LogBackendError>> + Send + Sync,
{
    let (mut found, reading) = (NewestRows::default(), clock::instant());
    let mut at = start(ask);
    at.length_ms = at.length_ms.clamp(1, LENGTH_MAX_MS);
    loop {
        let end = end_ms(&at).min(ask.filter.until_ms);
        // No row ends in the future. So a slice that ends in the future reaches as far back as one that ends now.
        let past_end = end.min(clock::unix_millis());
        let begin = past_end.saturating_sub(at.length_ms).max(ask.filter.since_ms);
        if begin >= end {
            return Ok(found);
        }
        let slice = LogPageQuery {
            began: reading,
            ..LogPageQuery::new(
                LogFilter {
                    since_ms: begin,
                    until_ms: end,
                    ..ask.filter.clone()
                },
                0,
                PAGE_ROWS_MAX,
            )
        };
        let (began, wanted) = (clock::instant(), ask.limit - found.rows.len());
        let (rows, count) = read_newest(&slice, &at, wanted, &page).await?;
        found.looked_at += count;
        adapt(
            &mut at,
            clock::instant().saturating_duration_since(began),
            count,
            wanted,
        );
        let is_full = rows.len() == wanted;
        let length_ms = at.length_ms;
        at = match rows.last().filter(|_| is_full) {
            Some(last) => SliceCursor::at_row(last, length_ms),
            None => SliceCursor {
                length_ms,
                ..SliceCursor::at_time(begin)
            },
        };
        found.rows.extend(rows);
        if !is_full && begin == ask.filter.since_ms {
            return Ok(found);
        }
        if is_full || has_passed(Some(ask.until)) {
            found.next = Some(NewestCursor::InSlices(at));
            return Ok(found);
        }
    }
}

/// Returns the position at which a query begins. If the previous page was read from the store's lists, rows of its last day may
/// be returned again.
pub(super) fn start(ask: &NewestRowsQuery) -> SliceCursor {
    match &ask.from {
        Some(NewestCursor::InSlices(at)) => at.clone(),
        Some(NewestCursor::InLists(at)) => SliceCursor::at_time(at.day.saturating_add(1).saturating_mul(DAY_MS)),
        None => SliceCursor::at_time(ask.filter.until_ms),
    }
}

/// Returns a time in milliseconds since the Unix epoch. All rows whose requests ended at this time or later have been read.
fn end_ms(at: &SliceCursor) -> i64 {
    // If the position is a row, other rows that ended at the same time may not have been read.
    let is_row = !at.account.is_empty();
    at.time_ms.saturating_add(i64::from(is_row))
}

/// Sets the length of the next slice. It depends on the time that the previous slice took, its number of rows, and the number
/// of wanted rows.
fn adapt(at: &mut SliceCursor, took: Duration, rows: usize, wanted: usize) {
    let length = if rows > ROWS_TO_SPARE * wanted {
        at.length_ms / 2
    } else if took > LONG {
        (at.length_ms / 2).max(HOUR_MS.min(at.length_ms))
    } else if took < SHORT && rows < wanted {
        at.length_ms.saturating_mul(2)
    } else {
        at.length_ms
    };
    at.length_ms = length.clamp(1, LENGTH_MAX_MS);
}

/// Returns the most recent of those rows of a slice that are older than the position `at`. Returns at most `wanted` rows, each
/// row once and the most recent first. Also returns how many rows of the slice are older than `at`.
async fn read_newest<'h, P>(
    slice: &LogPageQuery,
    at: &SliceCursor,
    wanted: usize,
    page: &P,
) -> Result<(Vec<Row>, usize), LogBackendError>
where
    P: Fn(LogPageQuery) -> BoxFuture<'h, Result<RowPage, LogBackendError>> + Send + Sync,
{
    let (mut newest, mut count) = (Vec::new(), 0);
    for day in slice.filter.first_day()..=slice.filter.last_day() {
        let mut ask = LogPageQuery { day, ..slice.clone() };
        loop {
            let RowPage { rows, next, .. } = page(ask.clone()).await?;
            let before = newest.len();
            newest.extend(rows.into_iter().filter(|row| time_key(row) < at.sort_key()));
            count += newest.len() - before;
            newest.sort_by(|one, other| time_key(other).cmp(&time_key(one)));
            newest.dedup_by(|one, other| time_key(one) == time_key(other));
            newest.truncate(wanted);
            let Some(next) = next else { break };
            ask.after = next;
        }
    }
    Ok((newest, count))
}
