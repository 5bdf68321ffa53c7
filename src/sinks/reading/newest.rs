//! Reads the newest rows from the log backends and those on their way there.

use std::sync::Arc;

use super::{LogReadError, LogReader};
use crate::{
    journal::NumberedRow,
    sinks::{
        asks::{NewestCursor, NewestRows, NewestRowsQuery, SliceCursor, time_key},
        slices,
    },
};

impl LogReader {
    /// A page of the newest rows: in the log backend's own way if it has all rows, else by time slices.
    pub(crate) async fn newest(&self, mut ask: NewestRowsQuery) -> Result<NewestRows, LogReadError> {
        if self.tails.is_none() && self.former.is_none() {
            return Ok(self.home.newest(&ask).await?);
        }
        ask.from = Some(NewestCursor::InSlices(slices::start(&ask)));
        let on_their_way = self.pending_rows(&ask.filter).await?;
        let mut parts = vec![newest_of(on_their_way, &ask)];
        for home in self.backends() {
            parts.push(home.newest(&ask).await?);
        }
        Ok(merge_newest(parts, ask.limit))
    }
}

/// The newest ones of some rows.
fn newest_of(mut rows: Vec<Arc<NumberedRow>>, ask: &NewestRowsQuery) -> NewestRows {
    if let Some(NewestCursor::InSlices(at)) = &ask.from {
        rows.retain(|row| time_key(&row.row) < at.sort_key());
    }
    let looked_at = rows.len();
    if looked_at > ask.limit {
        rows.select_nth_unstable_by(ask.limit, |one, other| time_key(&other.row).cmp(&time_key(&one.row)));
    }
    // One more than wanted, so that the next page has a position.
    rows.truncate(ask.limit + 1);
    NewestRows {
        rows: rows.iter().map(|row| row.row.clone()).collect(),
        next: None,
        looked_at,
    }
}

/// Merges the newest rows of several places, each row once. Only rows are returned that are not older than what was read of every
/// place.
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
