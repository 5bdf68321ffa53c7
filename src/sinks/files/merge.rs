//! Makes one file of the files of a lane and day.

use std::io;

use jiff::civil::Date;
use parquet::errors::Result;

use super::{
    place::{self, Place},
    query::is_gone,
    schema::GROUP_ROWS,
    storage::Storage,
    stream::Stream,
    workplace::Workplace,
    write,
};

/// Files that are merged at once: each of them takes some memory. Where there are more, what comes of them is merged again.
const MERGED_MAX: usize = 24;
/// How long after its end a day is taken to have all its files.
const SLACK_MS: i64 = 2 * 3600 * 1000;

/// Merges what can be merged of days that are over.
pub(super) fn merge_past(workplace: &Workplace, storage: &dyn Storage, now_ms: i64) -> io::Result<()> {
    let today = place::day_of(now_ms.saturating_sub(SLACK_MS));
    for day in storage.days()? {
        if day < today {
            remove_merged(storage, day)?;
            while let Some(run) = next_run(&storage.of(day)?) {
                match merge(workplace, storage, &run) {
                    Ok(()) => remove_merged(storage, day)?,
                    Err(error) if is_gone(&error) => {
                        tracing::info!(%day, "another node merges the log's files of this day");
                        break;
                    }
                    Err(error) => return Err(io::Error::other(format!("merging files of {day}: {error}"))),
                }
            }
        }
    }
    Ok(())
}

/// Removes files whose rows another one has.
fn remove_merged(storage: &dyn Storage, day: Date) -> io::Result<()> {
    let all = storage.all_of(day)?;
    let counting = place::counting(&all);
    let merged = all.iter().filter(|place| !counting.contains(place));
    merged.into_iter().try_for_each(|place| storage.remove(place))
}

/// Files of a lane that follow each other, or have some rows both: the first few, if there are two at least.
fn next_run(places: &[Place]) -> Option<Vec<Place>> {
    let runs = places.chunk_by(|one, next| one.node == next.node && next.after <= one.upto);
    let mut runs = runs.filter(|run| run.len() > 1);
    runs.next().map(|run| run.iter().take(MERGED_MAX).cloned().collect())
}

/// Makes one file of several that follow each other.
fn merge(workplace: &Workplace, storage: &dyn Storage, run: &[Place]) -> Result<()> {
    let (Some(first), Some(last)) = (run.first(), run.last()) else {
        return Ok(());
    };
    let merged = Place {
        upto: last.upto,
        ..first.clone()
    };
    let tables = run
        .iter()
        .map(|place| storage.open(place))
        .collect::<Result<Vec<_>>>()?;
    let mut stream = Stream::open(tables, None)?;
    write::file(workplace, storage, &merged, |out| {
        let mut group = Vec::with_capacity(GROUP_ROWS);
        while let Some(row) = stream.next()? {
            group.push(row);
            if group.len() == GROUP_ROWS {
                out.group(&group)?;
                group.clear();
            }
        }
        if group.is_empty() { Ok(()) } else { out.group(&group) }
    })
}
