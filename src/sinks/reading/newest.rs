//! The newest rows first, of the homes and of those on their way there.

use std::sync::Arc;

use super::{LogReadError, LogReading};
use crate::{
    journal::NumberedRow,
    sinks::{
        asks::{Newest, NewestAsk, NewestCursor, SliceCursor, by_time},
        slices,
    },
};

impl LogReading {
    /// Some of the newest rows: in the home's own way if all of them are there, or else by slices of time.
    pub(crate) async fn newest(&self, mut ask: NewestAsk) -> Result<Newest, LogReadError> {
        if self.tails.is_none() && self.former.is_none() {
            return Ok(self.home.newest(&ask).await?);
        }
        ask.from = Some(NewestCursor::InSlices(slices::begin(&ask)));
        let on_their_way = self.on_their_way(&ask.filter).await?;
        let mut parts = vec![newest_of(on_their_way, &ask)];
        for home in self.homes() {
            parts.push(home.newest(&ask).await?);
        }
        Ok(together(parts, ask.limit))
    }
}

/// The newest of some rows.
fn newest_of(mut rows: Vec<Arc<NumberedRow>>, ask: &NewestAsk) -> Newest {
    if let Some(NewestCursor::InSlices(at)) = &ask.from {
        rows.retain(|row| by_time(&row.row) < at.order());
    }
    let looked_at = rows.len();
    if looked_at > ask.limit {
        rows.select_nth_unstable_by(ask.limit, |one, other| by_time(&other.row).cmp(&by_time(&one.row)));
    }
    // One more than is wanted: then the others have a place to go on from.
    rows.truncate(ask.limit + 1);
    Newest {
        rows: rows.iter().map(|row| row.row.clone()).collect(),
        next: None,
        looked_at,
    }
}

/// The newest rows of several places, each once. Of some not all may have been read: none is given that is older than what has been
/// read of each.
fn together(parts: Vec<Newest>, limit: usize) -> Newest {
    let mut all = Newest::default();
    let mut up_to: Option<SliceCursor> = None;
    for part in parts {
        all.rows.extend(part.rows);
        all.looked_at += part.looked_at;
        if let Some(NewestCursor::InSlices(at)) = part.next
            && up_to.as_ref().is_none_or(|up_to| at.order() > up_to.order())
        {
            up_to = Some(at);
        }
    }
    if let Some(up_to) = &up_to {
        all.rows.retain(|row| by_time(row) >= up_to.order());
    }
    all.rows.sort_by(|one, other| by_time(other).cmp(&by_time(one)));
    all.rows.dedup_by(|one, other| by_time(one) == by_time(other));
    if all.rows.len() > limit {
        all.rows.truncate(limit);
        let length_ms = up_to.as_ref().map_or(SliceCursor::LENGTH_MS, |at| at.length_ms);
        up_to = all.rows.last().map(|last| SliceCursor::of(last, length_ms));
    }
    all.next = up_to.map(NewestCursor::InSlices);
    all
}
