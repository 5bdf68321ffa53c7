//! The storage of the log's files: a folder of this machine, or a bucket.

use std::{collections::BTreeMap, io};

use jiff::civil::Date;
use parquet::errors::Result;
use tempfile::NamedTempFile;

use super::{
    place::{self, FileName},
    table::TableReader,
};
use crate::domain::ledger::retention::RetentionProgress;

/// The storage of the log's files. All calls block, no longer than the timeouts of the implementation.
///
/// A file is complete and immutable once it is visible. Its name says which rows it has, so putting it again puts the same bytes.
pub(super) trait FileStorage: Send + Sync {
    /// Its name in messages.
    fn name(&self) -> String;

    /// The days that may have files, ascending.
    fn days(&self) -> io::Result<Vec<Date>>;

    /// The files of all days, ordered by day, lane and number.
    fn all_files(&self) -> io::Result<Vec<FileName>>;

    /// All files of a day, ordered by lane and number.
    fn day_files(&self, day: Date) -> io::Result<Vec<FileName>>;

    /// The files of a day without those that were merged into another one.
    fn unmerged_files(&self, day: Date) -> io::Result<Vec<FileName>> {
        Ok(place::without_merged(&self.day_files(day)?))
    }

    /// The sizes of a day's files, in bytes. Files that are removed meanwhile may be missing.
    fn file_sizes(&self, day: Date) -> io::Result<BTreeMap<FileName, u64>>;

    /// Opens a file. If it does not exist any more, the error is [`io::ErrorKind::NotFound`] in
    /// [`parquet::errors::ParquetError::External`].
    fn open(&self, place: &FileName) -> Result<TableReader>;

    /// Adds a complete file atomically; if it exists, that is fine. Durable when it returns.
    fn put(&self, place: &FileName, file: NamedTempFile) -> io::Result<()>;

    /// Makes files durable whose [`Storage::put`] was interrupted before it could.
    fn sync_files(&self) -> io::Result<()>;

    /// Removes a file, if it exists.
    fn remove(&self, place: &FileName) -> io::Result<()>;

    /// Removes all files of a day.
    fn remove_day(&self, day: Date) -> io::Result<()>;

    /// The state of removing old days; `None` if it is not known.
    fn retention(&self) -> io::Result<Option<RetentionProgress>>;

    /// Stores the state of removing old days.
    fn set_retention(&self, retention: &RetentionProgress) -> io::Result<()>;
}
