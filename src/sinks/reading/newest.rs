//! The newest rows first, of all places where some are.

use futures_util::future::try_join_all;

use super::{LogReadError, LogReading};
use crate::{
    sinks::{
        asks::{Newest, NewestAsk, NewestCursor, SliceCursor, by_time},
        home::LogHome,
    },
};

impl LogReading {
    /// Some of the newest rows. As far as no rows have left the store they are read from its lists.
    pub(crate) async fn newest(&self, mut ask: NewestAsk) -> Result<Newest, LogReadError> {
        let mut found = Newest::default();
        if !matches!(ask.from, Some(NewestCursor::InSlices(_))) {
            found = self.store.newest(&ask).await?;
            ask.limit -= found.rows.len();
            match &found.next {
                Some(NewestCursor::InSlices(_)) if ask.limit > 0 => ask.from.clone_from(&found.next),
                _ => return Ok(found),
            }
        }
        let places = self.places(false);
        let parts = try_join_all(places.iter().map(|home| home.newest(&ask))).await?;
        let rest = together(parts, &ask);
        found.rows.extend(rest.rows);
        Ok(Newest {
            next: rest.next,
            looked_at: found.looked_at + rest.looked_at,
            ..found
        })
    }
}

/// The newest rows of several places, each once. Of some not all may have been read: none is given that is older than what they
/// have been read up to.
fn together(parts: Vec<Newest>, ask: &NewestAsk) -> Newest {
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
    if all.rows.len() > ask.limit {
        all.rows.truncate(ask.limit);
        let length_ms = up_to.as_ref().map_or(SliceCursor::LENGTH_MS, |at| at.length_ms);
        up_to = all.rows.last().map(|last| SliceCursor::of(last, length_ms));
    }
    all.next = up_to.map(NewestCursor::InSlices);
    all
}
