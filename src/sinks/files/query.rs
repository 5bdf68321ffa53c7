//! Reads rows out of the files.

use std::{io, path::Path};

use parking_lot::Mutex;
use parquet::errors::{ParquetError, Result};

use super::{
    place,
    stream::{Stream, Wanted},
    table::Table,
};
use crate::domain::ledger::consumption::Row;

const DAY_MS: i64 = 24 * 3600 * 1000;
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
    pub(super) fn rows(&self, home: &Path, account: &str, day: i64, skip: usize, limit: usize) -> Result<Vec<Row>> {
        let wanted = Wanted {
            account: account.to_owned(),
            since_ms: day.saturating_mul(DAY_MS),
            until_ms: day.saturating_add(1).saturating_mul(DAY_MS),
        };
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
            let Some(row) = reader.stream.next()? else {
                return Ok(found);
            };
            if reader.at >= skip {
                found.push(row.row);
            }
            reader.at += 1;
        }
        self.keep(reader);
        Ok(found)
    }

    fn take(&self, wanted: &Wanted, at: usize) -> Option<Reader> {
        let mut kept = self.0.lock();
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

fn open(home: &Path, wanted: &Wanted) -> Result<Stream> {
    let mut attempts = ATTEMPTS_MAX;
    loop {
        attempts -= 1;
        match tables(home, wanted) {
            Ok(tables) => return Stream::open(tables, Some(wanted)),
            Err(error) if attempts > 0 && is_gone(&error) => {}
            Err(error) => return Err(error),
        }
    }
}

/// A file has rows of the day of its first one, and of the day before if they were late.
fn tables(home: &Path, wanted: &Wanted) -> Result<Vec<Table>> {
    let mut tables = Vec::new();
    for folder in [wanted.since_ms, wanted.until_ms] {
        for place in place::of(home, place::day_of(folder)).map_err(ParquetError::from)? {
            tables.push(Table::open(&place.path(home))?);
        }
    }
    Ok(tables)
}

fn is_gone(error: &ParquetError) -> bool {
    let ParquetError::External(error) = error else {
        return false;
    };
    let error = error.downcast_ref::<io::Error>();
    error.is_some_and(|error| error.kind() == io::ErrorKind::NotFound)
}
