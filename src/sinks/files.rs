//! The log backend that stores rows in Parquet files. Each lane gets a new file every hour, or more often. After a day is over,
//! the files of each lane for that day are merged into one.
//!
//! A file's name says which rows of the lane the file has, so files need no separate watermark. A file is written to a staging
//! folder, synced and renamed. The rows alone determine a file's bytes, so writing a file again produces the same bytes.

mod group;
mod merge;
mod query;
mod s3;
mod schema;
mod storage;
mod stream;
mod table;
#[cfg(test)]
mod tests;

use std::{
    collections::BTreeMap,
    fs::{self, DirBuilder, File},
    io,
    ops::RangeInclusive,
    os::unix::fs::{DirBuilderExt, MetadataExt},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use jiff::{Timestamp, civil::Date, tz::TimeZone};
use parquet::errors::ParquetError;
use tempfile::NamedTempFile;
use tokio::runtime::Handle;

use crate::{
    domain::{
        keys::KeyId,
        ledger::{NodeId, daily_sums::RetentionProgress, reports},
    },
    edges::low_priority::{LowPriorityThreads, NotDone},
    sinks::{
        Batch, BatchLimits, LatestKeyRows, Linger, LogBackend, LogBackendError, LogPageQuery, PAGE_ROWS_MAX, RowPage,
        Sink, SinkError,
        files::{
            merge::FileMerger,
            query::{PageReader, is_missing},
            storage::{BucketStorage, FileStorage, FolderStorage},
            table::sort_key,
        },
    },
};

pub(crate) use crate::sinks::files::s3::{BucketError, BucketSettings};
pub(crate) use crate::sinks::files::stream::ParquetExport;

/// The name of the sink and of the log backend, in settings and messages.
const NAME: &str = "files";
/// The maximum number of pages that are read concurrently. Further ones wait.
const READERS_MAX: usize = 4;
/// If batches wait at least this long for rows, a day has few files, and they are merged only after the day is over.
const FEW_FILES: Duration = Duration::from_secs(3600);

/// The consumption log in Parquet files, in a folder or a bucket.
#[derive(Clone)]
pub struct LogFiles {
    workplace: Arc<StagingFolder>,
    storage: Arc<dyn FileStorage>,
    batching: BatchLimits,
    merger: Arc<FileMerger>,
    merges_today: bool,
    pages: Arc<PageReader>,
    /// Threads that sort, compress and write up to an hour's rows at once. They have low priority, because requests must not
    /// wait for this work.
    writing: LowPriorityThreads,
    /// Threads that read pages, with the same low priority.
    reading: LowPriorityThreads,
}

impl LogFiles {
    /// Opens the log files in a folder. The folder is created if it does not exist. A new file contains the rows of one hour. The
    /// file is written before the hour is over if `longest` has passed since its first row was read, or if it has `rows_max`
    /// rows. If `longest` is less than an hour, files are already merged during their day.
    ///
    /// # Errors
    /// The folder cannot be created or cannot be written to.
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

    /// Stores the log files in a bucket. The folder that was opened is then used for staging only. Requests to the bucket run on
    /// `runtime`.
    ///
    /// # Errors
    /// The settings cannot be used. An unreachable or read-only bucket does not cause an error here; the first request detects it.
    pub(crate) fn in_bucket(self, settings: &BucketSettings, runtime: Handle) -> Result<Self, BucketError> {
        let storage = BucketStorage::new(settings, self.workplace.folder(), runtime)?;
        Ok(Self {
            storage: Arc::new(storage),
            ..self
        })
    }

    /// Writes the rows of a batch to a file, unless they are in a file already.
    fn write(&self, mut batch: Batch) -> Result<(), SinkError> {
        let failed = |error: ParquetError| self.failed(&error.to_string());
        let refused = |error: io::Error| self.failed(&error.to_string());
        // A previous call of this or an earlier process may still be running although it was dropped.
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
            day: day_of(first.row.time_ms),
            node: batch.node,
            after: batch.after,
            upto: batch.upto,
        };
        // An unstable sort gives the same order, because sort keys are unique, and it needs no further memory.
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

    /// Returns the watermark of a lane: the files have all rows of the lane with lower numbers.
    fn lane_end(&self, node: &NodeId) -> io::Result<u64> {
        let all = self.storage.all_files()?;
        let of_node = all.iter().filter(|place| place.node == *node);
        Ok(of_node.map(|place| place.upto).max().unwrap_or(0))
    }

    fn failed(&self, why: &str) -> SinkError {
        SinkError::Unavailable(format!("{}: {why}", self.storage.name()))
    }

    /// Runs `read`, which blocks on the disk, in a reader thread. The same thread reads consecutive pages. Otherwise one thread
    /// would free memory that another one has allocated, and the allocator would retain such memory for a while in both threads.
    async fn read<T: Send + 'static>(
        &self,
        read: impl Fn() -> parquet::errors::Result<T> + Send + 'static,
    ) -> Result<T, LogBackendError> {
        // Reads again if a file was removed meanwhile: its rows are in a merged file then.
        let read = move || match read() {
            Err(error) if is_missing(&error) => read(),
            read => read,
        };
        let failed = |why: String| LogBackendError::Unavailable(format!("{}: {why}", self.storage.name()));
        match self.reading.run(read).await {
            Ok(Ok(found)) => Ok(found),
            Ok(Err(error)) => Err(failed(error.to_string())),
            Err(NotDone) => Err(failed(
                "the thread that reads files panicked or could not be started".to_owned(),
            )),
        }
    }

    /// Waits until this process has written enough files today for [`LogFiles::housekeep`] to merge some of them.
    pub async fn wait_for_many_files(&self) {
        self.merger.wait_for_many().await;
    }

    /// Merges the files of past days. Merges files of today too if a lane of this process has many files of today. Also removes
    /// files that were merged into another one more than a minute ago, and all files that are older than `keep_days`. Can be
    /// called at any time. Blocks on the disk.
    ///
    /// # Errors
    /// The disk fails, or a file is damaged. No row is lost.
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
            tracing::info!(%day, "removed the log files of this day, because they were older than the retention period");
        }
        Ok(())
    }
}

/// Returns a day as the number of days since the Unix epoch.
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
        written
            .unwrap_or_else(|NotDone| Err(self.failed("the thread that writes files panicked or could not be started")))
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

/// The prefix of the names of partial files, which are still being written.
const PARTIAL: &str = ".partial-";
/// The age in milliseconds at which a partial file counts as abandoned. If nothing was written to the file for a day, its writer
/// has died.
const PARTIAL_OLD_MS: i64 = 24 * 3600 * 1000;

/// The folder in which log files are written before they are put into the storage. It also contains the lock files.
#[derive(Debug)]
struct StagingFolder(PathBuf);

impl StagingFolder {
    /// Opens the folder, after creating it if it does not exist, and checks that it can be written to.
    fn open(folder: &Path) -> io::Result<Self> {
        make_folder(folder)?;
        let workplace = Self(folder.to_owned());
        workplace.new_partial_file()?;
        Ok(workplace)
    }

    fn folder(&self) -> &Path {
        &self.0
    }

    /// Creates a partial file in this folder. It is removed when the returned value is dropped.
    fn new_partial_file(&self) -> io::Result<NamedTempFile> {
        new_partial_file_in(&self.0)
    }

    /// Locks a lane: no other writer on this machine writes the lane's rows until the returned file is dropped. Waits for the
    /// lock.
    fn lock_lane(&self, node: &NodeId) -> io::Result<File> {
        let file = self.lock_file(node.as_str())?;
        file.lock()?;
        Ok(file)
    }

    /// Locks the housekeeping of the log files until the returned file is dropped. `None` if another process of this machine has
    /// the lock.
    fn try_lock_housekeeping(&self) -> io::Result<Option<File>> {
        let file = self.lock_file("upkeep")?;
        Ok(file.try_lock().is_ok().then_some(file))
    }

    fn lock_file(&self, what: &str) -> io::Result<File> {
        File::create(self.0.join(format!(".lock-{what}")))
    }

    /// Removes abandoned partial files, which remain after a crash.
    fn remove_partial(&self, now_ms: i64) -> io::Result<()> {
        for name in file_names(&self.0)? {
            let path = self.0.join(&name);
            if name.starts_with(PARTIAL) && is_old(&path, now_ms) {
                fs::remove_file(path)?;
            }
        }
        Ok(())
    }
}

/// Creates a partial file in a folder. It is removed when the returned value is dropped.
fn new_partial_file_in(folder: &Path) -> io::Result<NamedTempFile> {
    tempfile::Builder::new().prefix(PARTIAL).tempfile_in(folder)
}

/// Returns whether a partial file is abandoned.
fn is_old(path: &Path, now_ms: i64) -> bool {
    let modified = fs::metadata(path).map_or(now_ms, |meta| meta.mtime().saturating_mul(1000));
    now_ms.saturating_sub(modified) > PARTIAL_OLD_MS
}

/// Creates a folder that only weir's user can access, because rows name accounts and their usage.
fn make_folder(folder: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

/// Returns the names in a folder. Returns no names if the folder does not exist.
fn file_names(folder: &Path) -> io::Result<Vec<String>> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut names = Vec::new();
    for entry in entries {
        names.extend(entry?.file_name().into_string().ok());
    }
    Ok(names)
}

const ENDING: &str = ".parquet";

/// The name of a log file, `DAY/NODE-AFTER-UPTO.parquet`. The file has the rows of the lane `node` whose numbers are at least
/// `after` and less than `upto`. `day` is the day on which the request of the first of these rows ended.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct FileName {
    day: Date,
    node: NodeId,
    after: u64,
    upto: u64,
}

impl FileName {
    /// Formats the name as a path relative to the storage.
    fn name(&self) -> String {
        let Self { day, node, after, upto } = self;
        format!("{day}/{node}-{after:016x}-{upto:016x}{ENDING}")
    }

    /// Parses a path relative to the storage. `None` if it is not the name of a log file.
    fn parse(name: &str) -> Option<Self> {
        let (day, name) = name.split_once('/')?;
        let day = parse_day(day)?;
        let mut parts = name.strip_suffix(ENDING)?.split('-');
        let (node, after, upto) = (parts.next()?, parts.next()?, parts.next()?);
        let number = |text: &str| (text.len() == 16).then(|| u64::from_str_radix(text, 16).ok()).flatten();
        let (node, after, upto) = (NodeId::parse(node)?, number(after)?, number(upto)?);
        let place = Self { day, node, after, upto };
        (parts.next().is_none() && after < upto && place.name().ends_with(name)).then_some(place)
    }

    /// Returns whether this file has all rows of another file of the same day and lane, and more.
    fn is_superset_of(&self, other: &Self) -> bool {
        (self.day, &self.node) == (other.day, &other.node)
            && self.after <= other.after
            && other.upto <= self.upto
            && (self.after, self.upto) != (other.after, other.upto)
    }
}

/// Returns the day of a time (UTC).
fn day_of(unix_ms: i64) -> Date {
    let time = Timestamp::from_millisecond(unix_ms).unwrap_or_default();
    time.to_zoned(TimeZone::UTC).date()
}

/// Parses the name of a day's folder. `None` if it is not one.
fn parse_day(name: &str) -> Option<Date> {
    name.parse().ok().filter(|day: &Date| day.to_string() == name)
}

/// Returns the files of `all` that were not merged into another file of `all`. `all` must be sorted.
fn without_merged(all: &[FileName]) -> Vec<FileName> {
    let mut counting: Vec<FileName> = Vec::new();
    for place in all {
        // In the result, `after` and `upto` of the files of a lane and day both ascend. Therefore a file that has all rows of
        // another one is adjacent to it.
        counting.pop_if(|last| place.is_superset_of(last));
        if !counting.last().is_some_and(|last| last.is_superset_of(place)) {
            counting.push(place.clone());
        }
    }
    counting
}
