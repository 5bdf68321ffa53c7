//! Where the log's files lie: in a folder of this machine, or elsewhere.

use std::{collections::BTreeMap, io};

use jiff::civil::Date;
use parquet::errors::Result;
use tempfile::NamedTempFile;

use super::{
    place::{self, Place},
    table::Table,
};
use crate::domain::ledger::retention::Retention;

/// Files by their names. All calls block, for no longer than the limits of whatever is behind them.
///
/// A file that is there is whole and does not change. Its name says which rows it has, so whoever puts it there again has the
/// same bytes.
pub(super) trait Storage: Send + Sync {
    /// What it is called in messages.
    fn name(&self) -> String;

    /// The days that may have files, ascending.
    fn days(&self) -> io::Result<Vec<Date>>;

    /// The files of all days, by day, lane and number.
    fn all(&self) -> io::Result<Vec<Place>>;

    /// All files of a day, by lane and number.
    fn all_of(&self, day: Date) -> io::Result<Vec<Place>>;

    /// Those of them that count: none of their rows is there twice, as after a merge.
    fn of(&self, day: Date) -> io::Result<Vec<Place>> {
        Ok(place::counting(&self.all_of(day)?))
    }

    /// The sizes of a day's files, in bytes. What goes meanwhile may be left out.
    fn bytes_of(&self, day: Date) -> io::Result<BTreeMap<Place, u64>>;

    /// Opens a file. One that is not there any more is [`io::ErrorKind::NotFound`] in
    /// [`parquet::errors::ParquetError::External`].
    fn open(&self, place: &Place) -> Result<Table>;

    /// Puts a complete file there, whole or not at all; one that is there already stays. Durable when it returns.
    fn put(&self, place: &Place, file: NamedTempFile) -> io::Result<()>;

    /// Makes durable what a call of [`Storage::put`] before may not have had the time for.
    fn settle(&self) -> io::Result<()>;

    /// Removes a file; that it is gone already is as well.
    fn remove(&self, place: &Place) -> io::Result<()>;

    /// Removes what there is of a day.
    fn remove_day(&self, day: Date) -> io::Result<()>;

    /// How far removal of old days has gone; `None` if that is not known.
    fn retention(&self) -> io::Result<Option<Retention>>;

    /// Keeps how far it has gone.
    fn keep_retention(&self, retention: &Retention) -> io::Result<()>;
}
