//! Makes one file of the files of a lane and day.

use std::{fs, io, path::Path};

use jiff::civil::Date;
use parquet::errors::Result;

use super::{
    place::{self, Place},
    schema::GROUP_ROWS,
    stream::Stream,
    table::Table,
    write,
};

/// Files that are merged at once: each of them takes some memory. Where there are more, what comes of them is merged again.
const MERGED_MAX: usize = 24;
/// How long after its end a day is taken to have all its files.
const SLACK_MS: i64 = 2 * 3600 * 1000;

/// Merges what can be merged of days that are over.
pub(super) fn merge_past(folder: &Path, now_ms: i64) -> io::Result<()> {
    let today = place::day_of(now_ms.saturating_sub(SLACK_MS));
    for day in place::days(folder)? {
        if day < today {
            remove_merged(folder, day)?;
            while let Some(run) = next_run(&place::of(folder, day)?) {
                merge(folder, &run).map_err(|error| io::Error::other(format!("merging files of {day}: {error}")))?;
                remove_merged(folder, day)?;
            }
        }
    }
    Ok(())
}

/// Removes files whose rows another one has.
fn remove_merged(folder: &Path, day: Date) -> io::Result<()> {
    let counting = place::of(folder, day)?;
    for place in place::all_of(folder, day)? {
        if !counting.contains(&place) {
            fs::remove_file(place.path(folder))?;
        }
    }
    Ok(())
}

/// Files of a lane that follow each other: the first few, if there are two at least.
fn next_run(places: &[Place]) -> Option<Vec<Place>> {
    let runs = places.chunk_by(|one, next| one.node == next.node && one.upto == next.after);
    let mut runs = runs.filter(|run| run.len() > 1);
    runs.next().map(|run| run.iter().take(MERGED_MAX).cloned().collect())
}

/// Makes one file of several that follow each other.
fn merge(folder: &Path, run: &[Place]) -> Result<()> {
    let (Some(first), Some(last)) = (run.first(), run.last()) else {
        return Ok(());
    };
    let merged = Place {
        upto: last.upto,
        ..first.clone()
    };
    let paths = run.iter().map(|place| place.path(folder));
    let tables = paths.map(|path| Table::open(&path)).collect::<Result<Vec<_>>>()?;
    let mut stream = Stream::open(tables, None)?;
    write::file(folder, &merged, |out| {
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
