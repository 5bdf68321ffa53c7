//! Reads the most recent rows of a log backend whose pages begin with the oldest row. Divides the time into slices, reads each
//! slice in the order of the log, and reverses it. The length of the slices adapts, so that a slice is read fast and has few rows
//! too many.

use std::time::Duration;

use futures_util::future::BoxFuture;

use crate::{
    domain::ledger::{consumption::Row, log_query::LogFilter},
    edges::clock,
    sinks::asks::{
        LogBackendError, LogPageQuery, NewestCursor, NewestRows, NewestRowsQuery, PAGE_ROWS_MAX, RowPage, SliceCursor,
        has_passed, time_key,
    },
};

const HOUR_MS: i64 = 3_600_000;
const DAY_MS: i64 = 24 * HOUR_MS;
/// The maximum length of a slice, in milliseconds.
const LENGTH_MAX_MS: i64 = 31 * DAY_MS;
/// After a slice that took longer than this, the next one is shorter, but at least an hour long. A page of a bucket has a minimum
/// cost, however short the slice is.
const LONG: Duration = Duration::from_millis(75);
/// After a slice that took less than this and had few rows, the next slice is longer.
const SHORT: Duration = Duration::from_millis(20);
/// After a slice with more than this multiple of the wanted rows, the next slice is shorter.
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
        let begin = end.saturating_sub(at.length_ms).max(ask.filter.since_ms);
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
        let (rows, count) = newest_of(&slice, &at, wanted, &page).await?;
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

/// Returns the time from which on all rows have been read, in milliseconds since the Unix epoch.
fn end_ms(at: &SliceCursor) -> i64 {
    // If the position is a row, other rows that ended at the same time may not have been read.
    let is_row = !at.account.is_empty();
    at.time_ms.saturating_add(i64::from(is_row))
}

/// Sets the length of the next slice, by the duration and the number of rows of the previous slice and the number of wanted rows.
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

/// Returns the most recent rows of a slice before the position `at`, the most recent first and each once. Also returns the number
/// of all rows of the slice.
async fn newest_of<'h, P>(
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
