//! The log as Parquet files: at first one for each lane and hour, or more often; finally one for each lane and day.
//!
//! A file's name says which rows of the journal it has, so the file is its own watermark. It is written to a staging file,
//! synced and renamed. Its content depends only on its rows: writing it again produces the same bytes.

use std::{collections::BTreeMap, io, ops::RangeInclusive, path::Path, sync::Arc, time::Duration};

use async_trait::async_trait;
use jiff::civil::Date;
use parquet::errors::ParquetError;
use tokio::runtime::Handle;

use crate::{
    domain::{
        keys::key::KeyId,
        ledger::{NodeId, reports, retention::RetentionProgress},
    },
    edges::low_priority::{LowPriorityThreads, NotDone},
    sinks::{
        Batch, LogBackend, Sink, SinkError,
        asks::{LatestKeyRows, LogBackendError, LogPageQuery, PAGE_ROWS_MAX, RowPage},
        batcher::{BatchLimits, Linger},
    },
};

mod group;
mod merge;
mod staging;

mod query;
mod s3;
mod schema;

mod storage;
mod stream;
mod table;
#[cfg(test)]
mod tests;

use crate::sinks::files::merge::FileMerger;
use crate::sinks::files::query::PageReader;
use crate::sinks::files::query::is_missing;
pub(crate) use crate::sinks::files::s3::{BucketError, BucketSettings};
use crate::sinks::files::staging::FileName;
use crate::sinks::files::staging::StagingFolder;
use crate::sinks::files::storage::BucketStorage;
use crate::sinks::files::storage::FileStorage;
use crate::sinks::files::storage::FolderStorage;
pub(crate) use crate::sinks::files::stream::ParquetExport;
use crate::sinks::files::table::sort_key;

/// The name of the sink and of the log backend.
const NAME: &str = "files";
/// The maximum number of concurrent readers; further ones wait.
const READERS_MAX: usize = 4;
/// If batches may wait this long for rows, a day has few files, and none are merged before it is over.
const FEW_FILES: Duration = Duration::from_secs(3600);

/// The log in files.
#[derive(Clone)]
pub struct LogFiles {
    workplace: Arc<StagingFolder>,
    storage: Arc<dyn FileStorage>,
    batching: BatchLimits,
    merger: Arc<FileMerger>,
    merges_today: bool,
    pages: Arc<PageReader>,
    /// Sorts, compresses and writes up to an hour's rows at once: requests must not wait for that.
    writing: LowPriorityThreads,
    /// Reads pages at the same priority.
    reading: LowPriorityThreads,
}

impl LogFiles {
    /// Opens the files of a folder, which is created if it does not exist. A new file has the rows of an hour or of `longest`, at
    /// most `rows_max`. Files of today are merged if `longest` is less than an hour.
    ///
    /// # Errors
    /// The folder cannot be created or written to.
    pub fn open(folder: &Path, longest: Duration, rows_max: usize) -> io::Result<Self> {
        let workplace = StagingFolder::open(folder)?;
        Ok(Self {
            workplace: Arc::new(workplace),
            storage: Arc::new(FolderStorage::new(folder)),
            batching: BatchLimits {
                rows_max,
                linger: Linger::HourOr(longest),
            },
            merger: Arc::default(),
            merges_today: longest < FEW_FILES,
            pages: Arc::default(),
            writing: LowPriorityThreads::new(1),
            reading: LowPriorityThreads::new(READERS_MAX),
        })
    }

    /// The same in a bucket; the folder is used for staging only. Requests run on `runtime`.
    ///
    /// # Errors
    /// The settings cannot be used. Whether the bucket can be reached and written to is found later.
    pub(crate) fn in_bucket(self, settings: &BucketSettings, runtime: Handle) -> Result<Self, BucketError> {
        let storage = BucketStorage::new(settings, self.workplace.folder(), runtime)?;
        Ok(Self {
            storage: Arc::new(storage),
            ..self
        })
    }

    /// Writes the rows of a batch, unless they exist.
    fn write(&self, mut batch: Batch) -> Result<(), SinkError> {
        let failed = |error: ParquetError| self.failed(&error.to_string());
        let refused = |error: io::Error| self.failed(&error.to_string());
        // A dropped call may still be running, in this or the previous process.
        let lock = self.workplace.lock_lane(&batch.node).map_err(refused)?;
        let watermark = self.lane_end(&batch.node).map_err(refused)?;
        if watermark >= batch.upto {
            self.storage.sync_files().map_err(refused)?;
            self.pages.close_readers();
            return Ok(());
        }
        if watermark != batch.after {
            return Err(SinkError::OutOfOrder { watermark });
        }
        let Some(first) = batch.rows.first() else { return Ok(()) };
        let place = FileName {
            day: staging::day_of(first.row.time_ms),
            node: batch.node,
            after: batch.after,
            upto: batch.upto,
        };
        // Every key is unique, and an unstable sort needs no further memory.
        batch
            .rows
            .sort_unstable_by(|one, other| sort_key(one).cmp(&sort_key(other)));
        merge::write_file(&self.workplace, &*self.storage, &place, |out| {
            batch
                .rows
                .chunks(schema::GROUP_ROWS)
                .try_for_each(|group| out.write_group(group))
        })
        .map_err(failed)?;
        drop(lock);
        if self.merges_today {
            self.merger.record_file(&place.node);
        }
        self.pages.close_readers();
        Ok(())
    }

    /// The end of a lane's rows: its watermark.
    fn lane_end(&self, node: &NodeId) -> io::Result<u64> {
        let all = self.storage.all_files()?;
        let of_node = all.iter().filter(|place| place.node == *node);
        Ok(of_node.map(|place| place.upto).max().unwrap_or(0))
    }

    fn failed(&self, why: &str) -> SinkError {
        SinkError::Unavailable(format!("{}: {why}", self.storage.name()))
    }

    /// Runs `read`, which blocks on the disk, in a reader thread. Consecutive pages use the same thread: memory that one thread
    /// allocates and another frees stays with both for a while.
    async fn read<T: Send + 'static>(
        &self,
        read: impl Fn() -> parquet::errors::Result<T> + Send + 'static,
    ) -> Result<T, LogBackendError> {
        // A file in a bucket cannot be read any more after it was merged.
        let read = move || match read() {
            Err(error) if is_missing(&error) => read(),
            read => read,
        };
        let failed = |why: String| LogBackendError::Unavailable(format!("{}: {why}", self.storage.name()));
        match self.reading.run(read).await {
            Ok(Ok(found)) => Ok(found),
            Ok(Err(error)) => Err(failed(error.to_string())),
            Err(NotDone) => Err(failed("the reader failed".to_owned())),
        }
    }

    /// Waits until this process has written enough files of today to merge some ([`LogFiles::housekeep`]).
    pub async fn wait_for_many_files(&self) {
        self.merger.wait_for_many().await;
    }

    /// Merges the files of past days, and today's files of the lanes that this process writes if there are many. Removes files
    /// that were merged more than a minute ago, and those of days beyond retention. May be called at any time; blocks on the
    /// disk.
    ///
    /// # Errors
    /// The disk fails, or a file is damaged. Nothing is lost.
    pub fn housekeep(&self, now_ms: i64, keep_days: i64) -> io::Result<()> {
        let Some(_turn) = self.workplace.try_lock_housekeeping()? else {
            return Ok(());
        };
        self.workplace.remove_partial(now_ms)?;
        self.remove_old(now_ms, keep_days)?;
        self.merger.merge(&self.workplace, &*self.storage, now_ms)
    }

    fn remove_old(&self, now_ms: i64, keep_days: i64) -> io::Result<()> {
        let days = self.storage.days()?;
        let oldest = days.first().map(|day| number_of(*day));
        let before = self.storage.retention()?;
        let after = match before {
            Some(before) => before.next_run(now_ms, keep_days, oldest),
            None => RetentionProgress::first_run(now_ms, keep_days, oldest),
        };
        if before != Some(after) {
            self.storage.set_retention(&after)?;
        }
        let first_kept = after.first_kept(now_ms);
        for day in days.into_iter().filter(|day| number_of(*day) < first_kept) {
            self.storage.remove_day(day)?;
            tracing::info!(%day, "the log's files of this day have passed their retention and were removed");
        }
        Ok(())
    }
}

/// The number of a day since the Unix epoch.
fn number_of(day: Date) -> i64 {
    reports::day_of_date(day)
}

#[async_trait]
impl Sink for LogFiles {
    fn name(&self) -> &'static str {
        NAME
    }

    fn batching(&self) -> BatchLimits {
        self.batching
    }

    async fn watermark(&self, node: &NodeId) -> Result<u64, SinkError> {
        let (files, node) = (self.clone(), node.clone());
        let end = tokio::task::spawn_blocking(move || {
            let _lock = files.workplace.lock_lane(&node)?;
            files.lane_end(&node)
        });
        match end.await {
            Ok(Ok(end)) => Ok(end),
            Ok(Err(error)) => Err(self.failed(&error.to_string())),
            Err(error) => Err(self.failed(&error.to_string())),
        }
    }

    async fn append(&self, batch: &Batch) -> Result<(), SinkError> {
        let (files, batch) = (self.clone(), batch.clone());
        let written = self.writing.run(move || files.write(batch)).await;
        written.unwrap_or_else(|NotDone| Err(self.failed("the writer failed")))
    }
}

#[async_trait]
impl LogBackend for LogFiles {
    fn name(&self) -> &'static str {
        NAME
    }

    async fn page(&self, ask: &LogPageQuery) -> Result<RowPage, LogBackendError> {
        let (files, ask) = (self.clone(), ask.clone());
        self.read(move || files.pages.page(&*files.storage, &ask)).await
    }

    async fn latest(
        &self,
        account: &str,
        key: &KeyId,
        days: RangeInclusive<i64>,
        limit: usize,
    ) -> Result<LatestKeyRows, LogBackendError> {
        let (files, account, key) = (self.clone(), account.to_owned(), key.clone());
        let read = move || {
            let limit = limit.min(PAGE_ROWS_MAX);
            query::latest(&*files.storage, (&account, &key), days.clone(), limit)
        };
        let rows = self.read(read).await?;
        Ok(LatestKeyRows {
            rows,
            is_complete: true,
        })
    }

    async fn watermarks(&self) -> Result<Option<BTreeMap<NodeId, u64>>, LogBackendError> {
        let files = self.clone();
        let read = move || {
            let mut ends = BTreeMap::new();
            for place in files.storage.all_files()? {
                let end = ends.entry(place.node).or_default();
                *end = place.upto.max(*end);
            }
            Ok(ends)
        };
        self.read(read).await.map(Some)
    }
}
