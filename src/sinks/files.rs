//! The log as Parquet files in a folder: one for each lane and hour at first, or more often, and one for each lane and day at last.
//!
//! A file's name says which rows of the journal it has, so the file is its own watermark. It is written beside, brought to
//! disk and renamed. What is in it follows from the rows alone: whoever writes it again makes the same bytes.

use std::{collections::BTreeMap, io, ops::RangeInclusive, path::Path, sync::Arc, time::Duration};

use async_trait::async_trait;
use jiff::civil::Date;
use parquet::errors::ParquetError;
use tokio::runtime::Handle;

use crate::{
    domain::{
        keys::key::KeyId,
        ledger::{NodeId, retention::Retention, usage_report},
    },
    edges::low_priority::{LowPriority, NotDone},
    sinks::{
        asks::{HomeError, Latest, LogPage, PAGE_ROWS_MAX, PageAsk},
        batching::{Batching, Linger},
        home::LogHome,
        sink::{Batch, Sink, SinkError},
    },
};

mod bucket;
mod export;
mod folder;
mod footers;
mod group;
mod merge;
mod pages;
mod place;
mod query;
mod s3;
mod schema;
mod source;
mod storage;
mod stream;
mod table;
#[cfg(test)]
mod tests;
mod wanted;
mod workplace;
mod write;

use bucket::Bucket;
pub(crate) use export::Export;
use folder::Folder;
use merge::Merger;
use pages::Pages;
use place::Place;
use query::is_gone;
pub(crate) use s3::{BucketError, BucketSettings};
use storage::Storage;
use table::sort_key;
use workplace::Workplace;

/// The name of the sink, and of the home.
const NAME: &str = "files";
/// How many read at a time; further ones wait for their turn.
const READERS_MAX: usize = 4;
/// Where rows wait for so long a day has few files, and none are merged before it is over.
const FEW_FILES: Duration = Duration::from_secs(3600);

/// The log in files.
#[derive(Clone)]
pub struct LogFiles {
    workplace: Arc<Workplace>,
    storage: Arc<dyn Storage>,
    batching: Batching,
    merger: Arc<Merger>,
    merges_today: bool,
    pages: Arc<Pages>,
    /// Sorts, packs and writes an hour's rows at a time: no request may wait for that.
    writing: LowPriority,
    /// Reads pages, at the same priority.
    reading: LowPriority,
}

impl LogFiles {
    /// The files of a folder, which is made if it is not there. A file has the rows of an hour, or of `longest`, and
    /// `rows_max` at most until files are merged. Those of today are if `longest` is less than an hour.
    ///
    /// # Errors
    /// It cannot be made, or weir may not write there.
    pub fn open(folder: &Path, longest: Duration, rows_max: usize) -> io::Result<Self> {
        let workplace = Workplace::open(folder)?;
        Ok(Self {
            workplace: Arc::new(workplace),
            storage: Arc::new(Folder::new(folder)),
            batching: Batching {
                rows_max,
                linger: Linger::HourOr(longest),
            },
            merger: Arc::default(),
            merges_today: longest < FEW_FILES,
            pages: Arc::default(),
            writing: LowPriority::new(1),
            reading: LowPriority::new(READERS_MAX),
        })
    }

    /// The same in a bucket, for which the folder is no more than a place to make files in. Requests run on the runtime.
    ///
    /// # Errors
    /// The settings name no bucket that could be asked. Whether it can be reached, and takes files, is seen later.
    pub(crate) fn in_bucket(self, settings: &BucketSettings, runtime: Handle) -> Result<Self, BucketError> {
        let storage = Bucket::new(settings, self.workplace.folder(), runtime)?;
        Ok(Self {
            storage: Arc::new(storage),
            ..self
        })
    }

    /// Writes the rows of a batch, unless they are there.
    fn write(&self, mut batch: Batch) -> Result<(), SinkError> {
        let failed = |error: ParquetError| self.failed(&error.to_string());
        let refused = |error: io::Error| self.failed(&error.to_string());
        // A call that was dropped may still be at work, in this process or in the one before.
        let lock = self.workplace.lock(&batch.node).map_err(refused)?;
        let watermark = self.end_of(&batch.node).map_err(refused)?;
        if watermark >= batch.upto {
            self.storage.settle().map_err(refused)?;
            self.pages.forget();
            return Ok(());
        }
        if watermark != batch.after {
            return Err(SinkError::OutOfOrder { watermark });
        }
        let Some(first) = batch.rows.first() else { return Ok(()) };
        let place = Place {
            day: place::day_of(first.row.time_ms),
            node: batch.node,
            after: batch.after,
            upto: batch.upto,
        };
        // Each has a key of its own, and half as many again need not be in memory.
        batch
            .rows
            .sort_unstable_by(|one, other| sort_key(one).cmp(&sort_key(other)));
        write::file(&self.workplace, &*self.storage, &place, |out| {
            batch
                .rows
                .chunks(schema::GROUP_ROWS)
                .try_for_each(|group| out.group(group))
        })
        .map_err(failed)?;
        drop(lock);
        if self.merges_today {
            self.merger.record_file(&place.node);
        }
        self.pages.forget();
        Ok(())
    }

    /// Where the rows of a lane end.
    fn end_of(&self, node: &NodeId) -> io::Result<u64> {
        let all = self.storage.all()?;
        let of_node = all.iter().filter(|place| place.node == *node);
        Ok(of_node.map(|place| place.upto).max().unwrap_or(0))
    }

    fn failed(&self, why: &str) -> SinkError {
        SinkError::Unavailable(format!("{}: {why}", self.storage.name()))
    }

    /// What is read of the files, which blocks on the disk. Page after page is read by one thread: what one thread allocates and another
    /// frees stays with both for a while.
    async fn read<T: Send + 'static>(
        &self,
        read: impl Fn() -> parquet::errors::Result<T> + Send + 'static,
    ) -> Result<T, HomeError> {
        // In a bucket a file that is merged meanwhile cannot be read on.
        let read = move || match read() {
            Err(error) if is_gone(&error) => read(),
            read => read,
        };
        let failed = |why: String| HomeError::Unavailable(format!("{}: {why}", self.storage.name()));
        match self.reading.run(read).await {
            Ok(Ok(found)) => Ok(found),
            Ok(Err(error)) => Err(failed(error.to_string())),
            Err(NotDone) => Err(failed("the reader failed".to_owned())),
        }
    }

    /// Waits until this process has written so many files of today that some may become one ([`LogFiles::keep_house`]).
    pub async fn has_many(&self) {
        self.merger.has_many().await;
    }

    /// Merges the files of days that are over, and of today those of the lanes that this process writes, if there are many; removes files
    /// that were merged more than a minute ago, and those of days that are not kept any more. At any time, as often as one likes; blocks
    /// on the disk.
    ///
    /// # Errors
    /// The disk refuses, or a file is damaged. Nothing is lost.
    pub fn keep_house(&self, now_ms: i64, keep_days: i64) -> io::Result<()> {
        let Some(_turn) = self.workplace.turn()? else {
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
            Some(before) => before.go_on(now_ms, keep_days, oldest),
            None => Retention::begin(now_ms, keep_days, oldest),
        };
        if before != Some(after) {
            self.storage.keep_retention(&after)?;
        }
        let first_kept = after.first_kept(now_ms);
        for day in days.into_iter().filter(|day| number_of(*day) < first_kept) {
            self.storage.remove_day(day)?;
            tracing::info!(%day, "the log's files of this day are older than they are kept, and removed");
        }
        Ok(())
    }
}

/// The number of a day since the Unix epoch.
fn number_of(day: Date) -> i64 {
    usage_report::day(day)
}

#[async_trait]
impl Sink for LogFiles {
    fn name(&self) -> &'static str {
        NAME
    }

    fn batching(&self) -> Batching {
        self.batching
    }

    async fn watermark(&self, node: &NodeId) -> Result<u64, SinkError> {
        let (files, node) = (self.clone(), node.clone());
        let end = tokio::task::spawn_blocking(move || {
            let _lock = files.workplace.lock(&node)?;
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
        let written = self.writing.run(move || files.write(batch)).await;
        written.unwrap_or_else(|NotDone| Err(self.failed("the writer failed")))
    }
}

#[async_trait]
impl LogHome for LogFiles {
    fn name(&self) -> &'static str {
        NAME
    }

    async fn page(&self, ask: &PageAsk) -> Result<LogPage, HomeError> {
        let (files, ask) = (self.clone(), ask.clone());
        self.read(move || files.pages.page(&*files.storage, &ask)).await
    }

    async fn latest(
        &self,
        account: &str,
        key: &KeyId,
        days: RangeInclusive<i64>,
        limit: usize,
    ) -> Result<Latest, HomeError> {
        let (files, account, key) = (self.clone(), account.to_owned(), key.clone());
        let read = move || {
            let limit = limit.min(PAGE_ROWS_MAX);
            pages::latest(&*files.storage, (&account, &key), days.clone(), limit)
        };
        let rows = self.read(read).await?;
        Ok(Latest { rows, is_whole: true })
    }

    async fn watermarks(&self) -> Result<Option<BTreeMap<NodeId, u64>>, HomeError> {
        let files = self.clone();
        let read = move || {
            let mut ends = BTreeMap::new();
            for place in files.storage.all()? {
                let end = ends.entry(place.node).or_default();
                *end = place.upto.max(*end);
            }
            Ok(ends)
        };
        self.read(read).await.map(Some)
    }
}
