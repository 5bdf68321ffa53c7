//! Finds and opens the files that may have the wanted rows of a day, and reads pages of them.

use std::io;

use parquet::errors::{ParquetError, Result};

use super::{
    place::{self, FileName},
    storage::FileStorage,
    stream::RowStream,
    table::TableReader,
    wanted::RowFilter,
};
use crate::domain::ledger::log_filter::LogFilter;

/// How often files are listed again because some were merged meanwhile.
const ATTEMPTS_MAX: usize = 5;

/// Opens the wanted rows of a day in the files that have them now.
pub(super) fn open(home: &dyn FileStorage, wanted: &RowFilter) -> Result<RowStream> {
    let mut attempts = ATTEMPTS_MAX;
    loop {
        attempts -= 1;
        match open_tables(home, wanted) {
            Ok(Some(tables)) => return RowStream::open(tables, Some(wanted)),
            Ok(None) if attempts > 0 => {}
            Ok(None) => {
                let what = "its files change faster than they can be opened; try again";
                return Err(ParquetError::General(what.to_owned()));
            }
            Err(error) if attempts > 0 && is_missing(&error) => {}
            Err(error) => return Err(error),
        }
    }
}

/// Opens the files; `None` if they were replaced meanwhile: a list made during a change may have neither the old nor the new
/// files.
fn open_tables(home: &dyn FileStorage, wanted: &RowFilter) -> Result<Option<Vec<TableReader>>> {
    let places = candidate_files(home, &wanted.filter)?;
    let tables = places.iter().map(|place| home.open(place));
    let tables = tables.collect::<Result<Vec<_>>>()?;
    Ok((candidate_files(home, &wanted.filter)? == places).then_some(tables))
}

/// The files that may have rows of the filter's day. A file has rows of its day, and late ones of the day before.
fn candidate_files(home: &dyn FileStorage, filter: &LogFilter) -> io::Result<Vec<FileName>> {
    let day = place::day_of(filter.since_ms);
    let mut places = home.unmerged_files(day)?;
    if let Ok(next) = day.tomorrow() {
        places.extend(home.unmerged_files(next)?);
    }
    Ok(places)
}

/// Whether a file does not exist any more: it was merged or too old.
pub(super) fn is_missing(error: &ParquetError) -> bool {
    let ParquetError::External(error) = error else {
        return false;
    };
    let error = error.downcast_ref::<io::Error>();
    error.is_some_and(|error| error.kind() == io::ErrorKind::NotFound)
}
