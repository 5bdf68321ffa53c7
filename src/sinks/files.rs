//! The log as Parquet files in a folder: one for each lane and hour at first, and one for each lane and day at last.
//!
//! A file's name says which rows of the journal it has, so the file is its own watermark. It is written beside, brought to
//! disk and renamed. What is in it follows from the rows alone: whoever writes it again makes the same bytes.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use jiff::civil::Date;
use parquet::errors::ParquetError;

use crate::{
    domain::ledger::{NodeId, consumption::Row, retention::Retention, usage_report},
    journal::NumberedRow,
    sinks::{
        batching::{Batching, Linger},
        home::{Home, HomeError},
        sink::{Batch, Sink, SinkError},
    },
};

mod export;
mod merge;
mod place;
mod query;
mod schema;
mod stream;
mod table;
#[cfg(test)]
mod tests;
mod write;

pub(crate) use export::Export;
use place::Place;
use query::Readers;
use table::sort_key;
use write::{PARTIAL, make_folder, sync};

/// One that has not been written to for so long is none any more: its writer has died.
const PARTIAL_OLD_MS: i64 = 24 * 3600 * 1000;
/// The file that says how far removal of old days has gone.
const RETENTION: &str = "retention.json";

/// The log in files of this machine.
#[derive(Clone)]
pub(crate) struct LogFiles {
    folder: Arc<PathBuf>,
    batching: Batching,
    readers: Arc<Readers>,
}

impl LogFiles {
    /// The files of a folder, which is made if it is not there. A file has the rows of an hour, or of `longest`, and
    /// `rows_max` at most until files are merged.
    ///
    /// # Errors
    /// It cannot be made, or weir may not write there.
    pub(crate) fn open(folder: &Path, longest: Duration, rows_max: usize) -> io::Result<Self> {
        make_folder(folder)?;
        tempfile::Builder::new().prefix(PARTIAL).tempfile_in(folder)?;
        Ok(Self {
            folder: Arc::new(folder.to_owned()),
            batching: Batching {
                rows_max,
                linger: Linger::HourOr(longest),
            },
            readers: Arc::default(),
        })
    }

    /// Writes the rows of a batch, unless they are there.
    fn write(&self, batch: &Batch) -> Result<(), SinkError> {
        let failed = |error: ParquetError| self.failed(&error.to_string());
        let refused = |error: io::Error| self.failed(&error.to_string());
        // A call that was dropped may still be at work, in this process or in the one before.
        let lock = self.lock(&batch.node).map_err(refused)?;
        let watermark = self.end_of(&batch.node).map_err(refused)?;
        if watermark >= batch.upto {
            return self.sync_days().map_err(refused);
        }
        if watermark != batch.after {
            return Err(SinkError::OutOfOrder { watermark });
        }
        let Some(first) = batch.rows.first() else { return Ok(()) };
        let place = Place {
            day: place::day_of(first.row.time_ms),
            node: batch.node.clone(),
            after: batch.after,
            upto: batch.upto,
        };
        let mut rows: Vec<&NumberedRow> = batch.rows.iter().collect();
        rows.sort_by(|one, other| sort_key(one).cmp(&sort_key(other)));
        let rows = rows.into_iter().cloned().collect::<Vec<_>>();
        write::file(&self.folder, &place, |out| {
            rows.chunks(schema::GROUP_ROWS).try_for_each(|group| out.group(group))
        })
        .map_err(failed)?;
        drop(lock);
        Ok(())
    }

    /// Nobody else writes rows of the lane until the answer is dropped.
    fn lock(&self, node: &NodeId) -> io::Result<File> {
        let file = self.lock_file(node.as_str())?;
        file.lock()?;
        Ok(file)
    }

    fn lock_file(&self, what: &str) -> io::Result<File> {
        File::create(self.folder.join(format!(".lock-{what}")))
    }

    /// Where the rows of a lane end.
    fn end_of(&self, node: &NodeId) -> io::Result<u64> {
        let mut end = 0;
        for day in place::days(&self.folder)? {
            let places = place::all_of(&self.folder, day)?;
            let of_node = places.iter().filter(|place| place.node == *node);
            end = of_node.map(|place| place.upto).max().unwrap_or(0).max(end);
        }
        Ok(end)
    }

    /// Brings names to disk that a call before may not have had the time for.
    fn sync_days(&self) -> io::Result<()> {
        for day in place::days(&self.folder)? {
            sync(&self.folder.join(day.to_string()))?;
        }
        sync(&self.folder)
    }

    fn failed(&self, why: &str) -> SinkError {
        SinkError::Unavailable(format!("{}: {why}", self.folder.display()))
    }

    /// Merges the files of days that are over, and removes those of days that are not kept any more. At any time, as often as
    /// one likes; blocks on the disk.
    ///
    /// # Errors
    /// The disk refuses, or a file is damaged. Nothing is lost.
    pub(crate) fn keep_house(&self, now_ms: i64, keep_days: i64) -> io::Result<()> {
        let turn = self.lock_file("upkeep")?;
        if turn.try_lock().is_err() {
            // Another process is at it.
            return Ok(());
        }
        self.remove_old(now_ms, keep_days)?;
        merge::merge_past(&self.folder, now_ms)
    }

    /// Removes what a crash has left of files that were being written.
    fn remove_partial(&self, days: &[Date], now_ms: i64) -> io::Result<()> {
        let of_days = days.iter().map(|day| self.folder.join(day.to_string()));
        for folder in of_days.chain([self.folder.to_path_buf()]) {
            for name in place::names(&folder)? {
                let path = folder.join(&name);
                if name.starts_with(PARTIAL) && is_old(&path, now_ms) {
                    fs::remove_file(path)?;
                }
            }
        }
        Ok(())
    }

    fn remove_old(&self, now_ms: i64, keep_days: i64) -> io::Result<()> {
        let path = self.folder.join(RETENTION);
        let days = place::days(&self.folder)?;
        let oldest = days.first().map(|day| number_of(*day));
        let before = fs::read(&path)
            .ok()
            .and_then(|text| serde_json::from_slice::<Retention>(&text).ok());
        let after = match before {
            Some(before) => before.go_on(now_ms, keep_days, oldest),
            None => Retention::begin(now_ms, keep_days, oldest),
        };
        if before != Some(after) {
            let mut partial = tempfile::Builder::new().prefix(PARTIAL).tempfile_in(&*self.folder)?;
            serde_json::to_writer(&mut partial, &after)?;
            partial.as_file().sync_all()?;
            partial.persist(&path).map_err(|error| error.error)?;
        }
        self.remove_partial(&days, now_ms)?;
        let first_kept = after.first_kept(now_ms);
        for day in days.into_iter().filter(|day| number_of(*day) < first_kept) {
            fs::remove_dir_all(self.folder.join(day.to_string()))?;
            tracing::info!(%day, "the log's files of this day are older than they are kept, and removed");
        }
        sync(&self.folder)
    }
}

/// Whether a file was last changed long ago.
fn is_old(path: &Path, now_ms: i64) -> bool {
    let modified = fs::metadata(path).map_or(now_ms, |meta| meta.mtime().saturating_mul(1000));
    now_ms.saturating_sub(modified) > PARTIAL_OLD_MS
}

/// The number of a day since the Unix epoch.
fn number_of(day: Date) -> i64 {
    usage_report::day(day)
}

#[async_trait]
impl Sink for LogFiles {
    fn name(&self) -> &'static str {
        "files"
    }

    fn batching(&self) -> Batching {
        self.batching
    }

    async fn watermark(&self, node: &NodeId) -> Result<u64, SinkError> {
        let (files, node) = (self.clone(), node.clone());
        let end = tokio::task::spawn_blocking(move || {
            let _lock = files.lock(&node)?;
            files.end_of(&node)
        });
        match end.await {
            Ok(Ok(end)) => Ok(end),
            Ok(Err(error)) => Err(self.failed(&error.to_string())),
            Err(error) => Err(self.failed(&error.to_string())),
        }
    }

    async fn append(&self, batch: &Batch) -> Result<(), SinkError> {
        let (files, batch) = (self.clone(), batch.clone());
        let written = tokio::task::spawn_blocking(move || files.write(&batch)).await;
        written.unwrap_or_else(|error| Err(self.failed(&error.to_string())))
    }
}

#[async_trait]
impl Home for LogFiles {
    async fn rows(&self, account: &str, day: i64, skip: usize, limit: usize) -> Result<Vec<Row>, HomeError> {
        let (files, account) = (self.clone(), account.to_owned());
        let rows =
            tokio::task::spawn_blocking(move || files.readers.rows(&files.folder, &account, day, skip, limit)).await;
        let failed = |why: String| HomeError(format!("{}: {why}", self.folder.display()));
        match rows {
            Ok(Ok(rows)) => Ok(rows),
            Ok(Err(error)) => Err(failed(error.to_string())),
            Err(error) => Err(failed(error.to_string())),
        }
    }
}
