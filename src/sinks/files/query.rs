//! Reads rows out of the files.

use std::io;

use parking_lot::Mutex;
use parquet::errors::{ParquetError, Result};

use super::{
    place::{self, Place},
    storage::Storage,
    stream::Stream,
    table::Table,
    wanted::Wanted,
};
use crate::{
    domain::ledger::{NodeId, log_filter::LogFilter},
    journal::NumberedRow,
};

/// How many readers may come back for the next page without having all of those before read again.
const KEPT_MAX: usize = 4;
/// How often files are looked for again because some were merged meanwhile.
const ATTEMPTS_MAX: usize = 5;

/// Readers in the middle of a day, those that were asked last at the end.
#[derive(Default)]
pub(super) struct Readers(Mutex<Vec<Reader>>);

/// A place in the rows of an account and day.
struct Reader {
    wanted: Wanted,
    /// How many of them have been read.
    at: usize,
    stream: Stream,
}

impl Readers {
    /// Up to `limit` rows of an account that ended on a day, by time, the first `skip` left out.
    pub(super) fn rows(
        &self,
        home: &dyn Storage,
        (account, day): (&str, i64),
        skip: usize,
        limit: usize,
    ) -> Result<Vec<(NodeId, NumberedRow)>> {
        let wanted = Wanted::all(LogFilter::of_day(account, day));
        let mut reader = match self.take(&wanted, skip) {
            Some(reader) => reader,
            None => Reader {
                stream: open(home, &wanted)?,
                wanted,
                at: 0,
            },
        };
        let mut found = Vec::new();
        while found.len() < limit {
            let Some(numbered) = reader.stream.next_of_lane()? else {
                return Ok(found);
            };
            if reader.at >= skip {
                found.push(numbered);
            }
            reader.at += 1;
        }
        self.keep(reader);
        Ok(found)
    }

    /// The reader at that place. Whoever begins anew wants what is there now, not the files of somebody who has gone.
    fn take(&self, wanted: &Wanted, at: usize) -> Option<Reader> {
        let mut kept = self.0.lock();
        if at == 0 {
            kept.retain(|reader| reader.wanted != *wanted);
        }
        let index = kept
            .iter()
            .position(|reader| reader.wanted == *wanted && reader.at == at && at > 0)?;
        Some(kept.remove(index))
    }

    fn keep(&self, reader: Reader) {
        let mut kept = self.0.lock();
        if kept.len() == KEPT_MAX {
            kept.remove(0);
        }
        kept.push(reader);
    }
}

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
