//! Finds the files that may have what is wanted of a day, and opens them together.

use std::io;

use parquet::errors::{ParquetError, Result};

use super::{
    place::{self, Place},
    storage::Storage,
    stream::Stream,
    table::Table,
    wanted::Wanted,
};
use crate::domain::ledger::log_filter::LogFilter;

/// How often files are looked for again because some were merged meanwhile.
const ATTEMPTS_MAX: usize = 5;

/// What is wanted of one day, of whatever files have it now.
pub(super) fn open(home: &dyn Storage, wanted: &Wanted) -> Result<Stream> {
    let mut attempts = ATTEMPTS_MAX;
    loop {
        attempts -= 1;
        match tables(home, wanted) {
            Ok(Some(tables)) => return Stream::open(tables, Some(wanted)),
            Ok(None) if attempts > 0 => {}
            Ok(None) => {
                let what = "its files change faster than they are found; try again";
                return Err(ParquetError::General(what.to_owned()));
            }
            Err(error) if attempts > 0 && is_gone(&error) => {}
            Err(error) => return Err(error),
        }
    }
}

/// The files, all open; `None` where others have taken their place meanwhile: a list of names that is made while they change
/// may have neither the old nor the new ones.
fn tables(home: &dyn Storage, wanted: &Wanted) -> Result<Option<Vec<Table>>> {
    let places = places(home, &wanted.filter)?;
    let tables = places.iter().map(|place| home.open(place));
    let tables = tables.collect::<Result<Vec<_>>>()?;
    Ok((self::places(home, &wanted.filter)? == places).then_some(tables))
}

/// What is asked for is of one day. A file has rows of the day of its first one, and of the day before if they were late.
fn places(home: &dyn Storage, filter: &LogFilter) -> io::Result<Vec<Place>> {
    let day = place::day_of(filter.since_ms);
    let mut places = home.of(day)?;
    if let Ok(next) = day.tomorrow() {
        places.extend(home.of(next)?);
    }
    Ok(places)
}

/// Whether a file is not there any more: it has been merged, or was too old.
pub(super) fn is_gone(error: &ParquetError) -> bool {
    let ParquetError::External(error) = error else {
        return false;
    };
    let error = error.downcast_ref::<io::Error>();
    error.is_some_and(|error| error.kind() == io::ErrorKind::NotFound)
}
