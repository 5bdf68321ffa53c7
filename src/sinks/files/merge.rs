//! Merges consecutive log files of a lane and day: files of similar size while the day lasts, and all files when it is over.
//!
//! The merged file is added before the files that it replaces are removed. The replaced files stay for a while. So a program
//! that has listed them can still read them, and every list contains either the replaced files or the merged file. Until the
//! replaced files are removed, each of their rows is in more than one file.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, BufWriter},
};

use parking_lot::Mutex;
use parquet::errors::Result;
use tokio::sync::Notify;

use crate::{
    domain::ledger::NodeId,
    sinks::files::{
        self, FileName, StagingFolder, query::is_missing, schema::GROUP_ROWS, storage::FileStorage, stream::RowStream,
        table::TableWriter,
    },
};

/// The maximum number of files that are merged at once. It is limited, because each file takes some memory during the merge. If a
/// day that is over has more files, the merged files are merged again. During the day, files are merged only when this many files
/// of similar size exist. With a new file every 30 seconds, about 50 files exist at the end of the day.
const MERGED_MAX: usize = 24;
/// During the day, a file is similar in size to a larger one if the larger one is at most this many times as large.
const ALIKE: u64 = 8;
/// The delay between the end of a day and the time at which the day counts as over, in milliseconds.
const SLACK_MS: i64 = 2 * 3600 * 1000;
/// The minimum time for which a file stays after it was merged into another one, in milliseconds.
const STAYS_MS: i64 = 60 * 1000;

/// Merges log files, and removes files that were merged into another one.
pub(super) struct FileMerger {
    /// The maximum number of files that are merged at once. During the day, exactly this number of files is merged.
    count: usize,
    /// The lanes whose files this process writes, with the number of files written since the most recent notification of `many`.
    /// Only this process merges files of these lanes during their day.
    own: Mutex<BTreeMap<NodeId, usize>>,
    /// The files that were merged into another one, with the time at which this was first seen, in milliseconds since the Unix
    /// epoch.
    merged: Mutex<BTreeMap<FileName, i64>>,
    many: Notify,
}

impl Default for FileMerger {
    fn default() -> Self {
        Self::with_count(MERGED_MAX)
    }
}

impl FileMerger {
    /// Creates a merger that merges at most `count` files at once, and exactly `count` during the day.
    pub(super) fn with_count(count: usize) -> Self {
        Self {
            count,
            own: Mutex::default(),
            merged: Mutex::default(),
            many: Notify::new(),
        }
    }

    /// Records that this process has written a file of the lane `node`. From now on this process also merges the lane's files
    /// during their day. Does nothing for the lane of copied rows: any process may write to it, so its files are merged only
    /// after their day.
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

    /// Waits until there may be enough files of today to merge some.
    pub(super) async fn wait_for_many(&self) {
        self.many.notified().await;
    }

    /// Merges all files that can be merged, and removes files that were merged some time ago.
    pub(super) fn merge(&self, workplace: &StagingFolder, storage: &dyn FileStorage, now_ms: i64) -> io::Result<()> {
        let merged = self.merge_days(workplace, storage, now_ms);
        // Merged files are removed even if a merge has failed.
        self.remove_merged(storage, now_ms)?;
        merged
    }

    fn merge_days(&self, workplace: &StagingFolder, storage: &dyn FileStorage, now_ms: i64) -> io::Result<()> {
        let today = files::day_of(now_ms.saturating_sub(SLACK_MS));
        for of_day in storage.all_files()?.chunk_by(|one, next| one.day == next.day) {
            let Some(day) = of_day.first().map(|place| place.day) else {
                continue;
            };
            let mut places = files::without_merged(of_day);
            while let Some(run) = self.next_run(storage, &places, day < today)? {
                match merge(workplace, storage, &run) {
                    Ok(()) => places = storage.unmerged_files(day)?,
                    Err(error) if is_missing(&error) => {
                        tracing::info!(%day, "another node is merging the log files of this day, so this node does not merge them");
                        break;
                    }
                    Err(error) => {
                        return Err(io::Error::other(format!(
                            "cannot merge the log files of {day}: {error}"
                        )));
                    }
                }
            }
        }
        Ok(())
    }

    /// Removes files that were merged into another one at least [`STAYS_MS`] ago.
    fn remove_merged(&self, storage: &dyn FileStorage, now_ms: i64) -> io::Result<()> {
        let all = storage.all_files()?;
        let counting = files::without_merged(&all);
        let covered = all.into_iter().filter(|place| counting.binary_search(place).is_err());
        let old: BTreeMap<FileName, i64> = {
            let mut known = self.merged.lock();
            // A clock that was ahead and was set back does not delay the removal.
            let since = |place: &FileName| known.get(place).map_or(now_ms, |since| now_ms.min(*since));
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

    /// Returns the next files of a day to be merged: consecutive or overlapping files of one lane. `None` if nothing is to be
    /// merged. `places` are the day's files; `is_over` says whether the day is over.
    fn next_run(
        &self,
        storage: &dyn FileStorage,
        places: &[FileName],
        is_over: bool,
    ) -> io::Result<Option<Vec<FileName>>> {
        let least = if is_over { 2 } else { self.count };
        let runs = places.chunk_by(|one, next| one.node == next.node && next.after <= one.upto);
        let mut runs = runs.filter(|run| run.len() >= least);
        if is_over {
            let run = runs.next().map(|run| run.iter().take(self.count).cloned().collect());
            return Ok(run);
        }
        let own: Vec<&[FileName]> = {
            let own = self.own.lock();
            let is_own = |run: &&[FileName]| run.first().is_some_and(|first| own.contains_key(&first.node));
            runs.filter(is_own).collect()
        };
        let Some(first) = own.iter().find_map(|run| run.first()) else {
            return Ok(None);
        };
        let bytes = storage.file_sizes(first.day)?;
        Ok(own.into_iter().find_map(|run| similar_files(run, &bytes, self.count)))
    }
}

/// Selects `count` consecutive files of similar size from `run`. The largest file of `run` determines the candidates: the last
/// file that is similar to it in size, and all files before that file. If there are at least `count` candidates, the first
/// `count` of them are selected. Otherwise the search is repeated with the files after the candidates, which are smaller. So a
/// row is rewritten only a few times a day, and fewer than `count` files of each size remain. Returns `None` if fewer than
/// `count` files are similar.
pub(super) fn similar_files(run: &[FileName], bytes: &BTreeMap<FileName, u64>, count: usize) -> Option<Vec<FileName>> {
    let bytes_of = |place: &FileName| bytes.get(place).copied().unwrap_or(0);
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

/// Merges consecutive files of a lane into one.
fn merge(workplace: &StagingFolder, storage: &dyn FileStorage, run: &[FileName]) -> Result<()> {
    let (Some(first), Some(last)) = (run.first(), run.last()) else {
        return Ok(());
    };
    let merged = FileName {
        upto: last.upto,
        ..first.clone()
    };
    let tables = run
        .iter()
        .map(|place| storage.open(place))
        .collect::<Result<Vec<_>>>()?;
    let mut stream = RowStream::open(tables, None)?;
    write_file(workplace, storage, &merged, |out| {
        let mut group = Vec::with_capacity(GROUP_ROWS);
        while let Some(row) = stream.next()? {
            group.push(row);
            if group.len() == GROUP_ROWS {
                out.write_group(&group)?;
                group.clear();
            }
        }
        if group.is_empty() {
            Ok(())
        } else {
            out.write_group(&group)
        }
    })
}

/// Writes a log file with the rows that `fill` adds, and puts it into the storage.
pub(super) fn write_file(
    workplace: &StagingFolder,
    storage: &dyn FileStorage,
    place: &FileName,
    fill: impl FnOnce(&mut TableWriter<BufWriter<File>>) -> Result<()>,
) -> Result<()> {
    let partial = workplace.new_partial_file()?;
    let mut out = TableWriter::new(BufWriter::new(partial.reopen()?), place)?;
    fill(&mut out)?;
    out.finish()?.into_inner().map_err(io::IntoInnerError::into_error)?;
    storage.put(place, partial)?;
    Ok(())
}
