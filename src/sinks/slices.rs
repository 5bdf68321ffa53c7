//! The newest rows first by pages that have them the other way round: slice by slice of time, each read in the order of the log and
//! turned round. Slices are as long as a page takes little time and has few rows to spare.

use std::time::Duration;

use futures_util::future::BoxFuture;

use crate::{
    domain::ledger::{consumption::Row, log_filter::LogFilter},
    edges::clock,
    sinks::asks::{
        HomeError, LogPage, Newest, NewestAsk, NewestCursor, PAGE_ROWS_MAX, PageAsk, SliceCursor, by_time, is_over,
    },
};

const HOUR_MS: i64 = 3_600_000;
const DAY_MS: i64 = 24 * HOUR_MS;
/// The longest slice.
const LENGTH_MAX_MS: i64 = 31 * DAY_MS;
/// The next slice is shorter than one that took longer than this, though not for that shorter than an hour: what a page of a
/// bucket costs at the least, it costs however short the slice is.
const LONG: Duration = Duration::from_millis(75);
/// The next slice is longer than one that took less than this and had few rows.
const SHORT: Duration = Duration::from_millis(20);
/// How many times the rows that are wanted a slice may have, before the next one is shorter.
const ROWS_TO_SPARE: usize = 4;

/// The newest rows, until there are as many as were asked for or the time is over. `page` gives pages of a home.
pub(super) async fn newest<'h, P>(ask: &NewestAsk, page: P) -> Result<Newest, HomeError>
where
    P: Fn(PageAsk) -> BoxFuture<'h, Result<LogPage, HomeError>> + Send + Sync,
{
    let (mut found, reading) = (Newest::default(), clock::instant());
    let mut at = begin(ask);
    at.length_ms = at.length_ms.clamp(1, LENGTH_MAX_MS);
    loop {
        let end = end_ms(&at).min(ask.filter.until_ms);
        let begin = end.saturating_sub(at.length_ms).max(ask.filter.since_ms);
        if begin >= end {
            return Ok(found);
        }
        let slice = PageAsk {
            began: reading,
            ..PageAsk::new(
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
            Some(last) => SliceCursor::of(last, length_ms),
            None => SliceCursor {
                length_ms,
                ..SliceCursor::at(begin)
            },
        };
        found.rows.extend(rows);
        if !is_full && begin == ask.filter.since_ms {
            return Ok(found);
        }
        if is_full || is_over(Some(ask.until)) {
            found.next = Some(NewestCursor::InSlices(at));
            return Ok(found);
        }
    }
}

/// Where it begins. Of a day whose rows were read from the store's lists in the page before, some may come again.
pub(super) fn begin(ask: &NewestAsk) -> SliceCursor {
    match &ask.from {
        Some(NewestCursor::InSlices(at)) => at.clone(),
        Some(NewestCursor::InLists(at)) => SliceCursor::at(at.day.saturating_add(1).saturating_mul(DAY_MS)),
        None => SliceCursor::at(ask.filter.until_ms),
    }
}

/// The first moment that nothing is left of.
fn end_ms(at: &SliceCursor) -> i64 {
    // Behind a row others of its moment may be left.
    let is_row = !at.account.is_empty();
    at.time_ms.saturating_add(i64::from(is_row))
}

/// Sets the length of the slice after one that took this time and had this number of rows.
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

/// The newest rows of a slice behind a place, the newest first and each once, and how many there are in all.
async fn newest_of<'h, P>(
    slice: &PageAsk,
    at: &SliceCursor,
    wanted: usize,
    page: &P,
) -> Result<(Vec<Row>, usize), HomeError>
where
    P: Fn(PageAsk) -> BoxFuture<'h, Result<LogPage, HomeError>> + Send + Sync,
{
    let (mut newest, mut count) = (Vec::new(), 0);
    for day in slice.filter.first_day()..=slice.filter.last_day() {
        let mut ask = PageAsk { day, ..slice.clone() };
        loop {
            let LogPage { rows, next, .. } = page(ask.clone()).await?;
            let before = newest.len();
            newest.extend(rows.into_iter().filter(|row| by_time(row) < at.order()));
            count += newest.len() - before;
            newest.sort_by(|one, other| by_time(other).cmp(&by_time(one)));
            newest.dedup_by(|one, other| by_time(one) == by_time(other));
            newest.truncate(wanted);
            let Some(next) = next else { break };
            ask.after = next;
        }
    }
    Ok((newest, count))
}
