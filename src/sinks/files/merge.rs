//! Makes one file of several of a lane and day that follow each other: of many alike today, of all when the day is over.
//!
//! The file with the rows of all is put there first. The others stay for a while: a program that has listed them goes on to read them, and
//! no list, however it is made, has neither them nor the new one. Until they go, each of their rows is in more than one file.

use std::{collections::BTreeMap, io};

use parking_lot::Mutex;
use parquet::errors::Result;
use tokio::sync::Notify;

use super::{
    place::{self, Place},
    query::is_gone,
    schema::GROUP_ROWS,
    storage::Storage,
    stream::Stream,
    workplace::Workplace,
    write,
};
use crate::domain::ledger::NodeId;

/// Files that are merged at once: each of them takes some memory. Where there are more, what comes of them is merged again. Today
/// fewer of a kind are left as they are: a file each 30 seconds makes some 50 a day.
const MERGED_MAX: usize = 24;
/// How many times as large as another one a file of today may be that is merged with it.
const ALIKE: u64 = 8;
/// How long after its end a day is taken to have all its files.
const SLACK_MS: i64 = 2 * 3600 * 1000;
/// How long a file stays, at least, whose rows another one has.
const STAYS_MS: i64 = 60 * 1000;

/// Merges files, and removes those whose rows others have.
pub(super) struct Merger {
    /// How many files become one.
    count: usize,
    /// The lanes that this process writes, and how many files of each it has written since [`Merger::has_many`] last said so. No other
    /// process merges their files of today.
    own: Mutex<BTreeMap<NodeId, usize>>,
    /// Files whose rows another one has, and when that was seen first.
    covered: Mutex<BTreeMap<Place, i64>>,
    many: Notify,
}

impl Default for Merger {
    fn default() -> Self {
        Self::of(MERGED_MAX)
    }
}

impl Merger {
    /// Makes one file of at most `count`, and today of exactly as many.
    pub(super) fn of(count: usize) -> Self {
        Self {
            count,
            own: Mutex::default(),
            covered: Mutex::default(),
            many: Notify::new(),
        }
    }

    /// This process has written a file of a lane, and merges the lane's files of today from now on. Rows that were brought from
    /// elsewhere are of a lane that any process may write: its files wait for the end of their day.
    pub(super) fn record_file(&self, node: &NodeId) {
        if *node == NodeId::none() {
            return;
        }
        let mut own = self.own.lock();
        let count = own.entry(node.clone()).or_default();
        *count += 1;
        if *count >= self.count {
            *count = 0;
            self.many.notify_one();
        }
    }

    /// Waits until there may be files of today to merge.
    pub(super) async fn has_many(&self) {
        self.many.notified().await;
    }

    /// Merges what can be merged, and removes files that were merged a while ago.
    pub(super) fn merge(&self, workplace: &Workplace, storage: &dyn Storage, now_ms: i64) -> io::Result<()> {
        let merged = self.merge_days(workplace, storage, now_ms);
        // They go, too, where a file cannot be merged.
        self.remove_covered(storage, now_ms)?;
        merged
    }

    fn merge_days(&self, workplace: &Workplace, storage: &dyn Storage, now_ms: i64) -> io::Result<()> {
        let today = place::day_of(now_ms.saturating_sub(SLACK_MS));
        for of_day in storage.all()?.chunk_by(|one, next| one.day == next.day) {
            let Some(day) = of_day.first().map(|place| place.day) else {
                continue;
            };
            let mut places = place::counting(of_day);
            while let Some(run) = self.next_run(storage, &places, day < today)? {
                match merge(workplace, storage, &run) {
                    Ok(()) => places = storage.of(day)?,
                    Err(error) if is_gone(&error) => {
                        tracing::info!(%day, "another node merges the log's files of this day");
                        break;
                    }
                    Err(error) => return Err(io::Error::other(format!("merging files of {day}: {error}"))),
                }
            }
        }
        Ok(())
    }

    /// Removes files whose rows another one has had for a while.
    fn remove_covered(&self, storage: &dyn Storage, now_ms: i64) -> io::Result<()> {
        let all = storage.all()?;
        let counting = place::counting(&all);
        let covered = all.into_iter().filter(|place| counting.binary_search(place).is_err());
        let old: BTreeMap<Place, i64> = {
            let mut known = self.covered.lock();
            // A clock that was ahead makes none stay for longer.
            let since = |place: &Place| known.get(place).map_or(now_ms, |since| now_ms.min(*since));
            let seen = covered.map(|place| {
                let since = since(&place);
                (place, since)
            });
            let (old, new) = seen.partition(|(_, since)| now_ms.saturating_sub(*since) >= STAYS_MS);
            *known = new;
            old
        };
        old.keys().try_for_each(|place| storage.remove(place))
    }

    /// Files of a day to merge, if there are some: the first ones of a lane that follow each other, or have some rows both.
    fn next_run(&self, storage: &dyn Storage, places: &[Place], is_over: bool) -> io::Result<Option<Vec<Place>>> {
        let least = if is_over { 2 } else { self.count };
        let runs = places.chunk_by(|one, next| one.node == next.node && next.after <= one.upto);
        let mut runs = runs.filter(|run| run.len() >= least);
        if is_over {
            let run = runs.next().map(|run| run.iter().take(self.count).cloned().collect());
            return Ok(run);
        }
        let own: Vec<&[Place]> = {
            let own = self.own.lock();
            let is_own = |run: &&[Place]| run.first().is_some_and(|first| own.contains_key(&first.node));
            runs.filter(is_own).collect()
        };
        let Some(first) = own.iter().find_map(|run| run.first()) else {
            return Ok(None);
        };
        let bytes = storage.bytes_of(first.day)?;
        Ok(own.into_iter().find_map(|run| many_alike(run, &bytes, self.count)))
    }
}

/// The first `count` of the files up to the last one that is alike to the largest; where these are fewer, the same of the files behind
/// them, which are smaller. So a row is written a few times a day, and fewer than `count` files are left of each size.
pub(super) fn many_alike(run: &[Place], bytes: &BTreeMap<Place, u64>, count: usize) -> Option<Vec<Place>> {
    let bytes_of = |place: &Place| bytes.get(place).copied().unwrap_or(0);
    let mut left = run;
    while left.len() >= count {
        let largest = left.iter().map(bytes_of).max()?;
        let last = left
            .iter()
            .rposition(|place| bytes_of(place).saturating_mul(ALIKE) >= largest)?;
        let (alike, smaller) = left.split_at_checked(last + 1)?;
        if alike.len() >= count {
            return Some(alike.iter().take(count).cloned().collect());
        }
        left = smaller;
    }
    None
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
