//! Finds and opens the files that may have the wanted rows of a day, and reads pages of them.

use std::{
    collections::VecDeque,
    io,
    ops::RangeInclusive,
    sync::atomic::{AtomicU64, Ordering},
};

use parking_lot::Mutex;
use parquet::errors::{ParquetError, Result};

use crate::{
    domain::{
        keys::key::KeyId,
        ledger::{
            NodeId,
            consumption::Row,
            log_query::{self, LogFilter, LogPosition},
        },
    },
    journal::NumberedRow,
    sinks::{
        asks::{LogPageQuery, PAGE_ROWS_MAX, RowPage},
        files::{
            group::RowFilter,
            staging::{self, FileName},
            storage::FileStorage,
            stream::RowStream,
            table::TableReader,
        },
    },
};

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
    let day = staging::day_of(filter.since_ms);
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

/// The maximum number of readers that stay open for their next page.
const KEPT_MAX: usize = 4;

/// Reads pages of a day's rows. Keeps readers in the middle of a day open, the last used at the end.
#[derive(Default)]
pub(super) struct PageReader {
    kept: Mutex<Vec<DayReader>>,
    /// The number of files that this process has added. An older reader lacks their rows.
    added: AtomicU64,
}

/// Reads the rows of a day.
struct DayReader {
    filter: LogFilter,
    day: i64,
    /// The last row that was read.
    at: LogPosition,
    /// The value of `added` of the reader of pages when the files were opened.
    added: u64,
    rows: OrderedRows,
}

impl PageReader {
    /// Reads a page of a day. Blocks on the disk.
    pub(super) fn page(&self, home: &dyn FileStorage, ask: &LogPageQuery) -> Result<RowPage> {
        let limit = ask.limit.min(PAGE_ROWS_MAX);
        // Read before the files are listed: a file added meanwhile makes the reader outdated.
        let added = self.added.load(Ordering::SeqCst);
        let mut reader = match self.take_reader(ask, added) {
            Some(reader) => reader,
            None => DayReader {
                filter: ask.filter.clone(),
                day: ask.day,
                at: ask.after.clone(),
                added,
                rows: OrderedRows::open(home, ask)?,
            },
        };
        let mut found: Vec<(NodeId, NumberedRow)> = Vec::new();
        loop {
            let Some((lane, numbered)) = reader.rows.next()? else {
                // The last page, even if it is full.
                return Ok(RowPage::from_rows(found, usize::MAX));
            };
            let row = &numbered.row;
            if log_query::row_sort_key(row) <= ask.after.sort_key() || !ask.filter.matches(row) {
                continue;
            }
            if let Some((_, last)) = found.last().filter(|_| found.len() >= limit)
                && log_query::row_sort_key(&last.row) != log_query::row_sort_key(row)
            {
                reader.rows.put_back((lane, numbered));
                break;
            }
            found.push((lane, numbered));
        }
        let page = RowPage::from_rows(found, limit);
        if let Some(last) = &page.next {
            reader.at.clone_from(last);
            self.keep_reader(reader);
        }
        Ok(page)
    }

    /// Closes all readers, after a file was added: only later readers find its rows.
    pub(super) fn close_readers(&self) {
        self.added.fetch_add(1, Ordering::SeqCst);
        self.kept.lock().clear();
    }

    fn take_reader(&self, ask: &LogPageQuery, added: u64) -> Option<DayReader> {
        let mut kept = self.kept.lock();
        let goes_on = |reader: &DayReader| {
            reader.added == added
                && reader.day == ask.day
                && reader.at == ask.after
                && ask.filter.is_suffix_of(&reader.filter)
        };
        let index = kept.iter().position(goes_on)?;
        Some(kept.remove(index))
    }

    fn keep_reader(&self, reader: DayReader) {
        let mut kept = self.kept.lock();
        if kept.len() == KEPT_MAX {
            kept.remove(0);
        }
        kept.push(reader);
    }
}

/// The last rows of a key that ended on one of these days, the latest first, at most `limit`.
pub(super) fn latest(
    home: &dyn FileStorage,
    (account, key): (&str, &KeyId),
    days: RangeInclusive<i64>,
    limit: usize,
) -> Result<Vec<Row>> {
    let mut found = Vec::new();
    for day in days.rev() {
        let filter = LogFilter {
            key: Some(key.clone()),
            ..LogFilter::of_day(account, day)
        };
        let mut rows = OrderedRows::open(home, &LogPageQuery::new(filter, day, limit))?;
        let (mut last, left) = (VecDeque::new(), limit.saturating_sub(found.len()));
        if left == 0 {
            break;
        }
        while let Some((_, NumberedRow { row, .. })) = rows.next()? {
            if last.len() == left {
                last.pop_front();
            }
            last.push_back(row);
        }
        found.extend(last.into_iter().rev());
    }
    Ok(found)
}

/// Orders rows by account, time and request. Files order rows of one account and millisecond by number; these few are sorted
/// here.
struct OrderedRows {
    stream: RowStream,
    /// Rows of one account and time.
    together: VecDeque<(NodeId, NumberedRow)>,
    ahead: Option<(NodeId, NumberedRow)>,
}

impl OrderedRows {
    /// Opens the rows of a page in the files that have them now, from the account and time of the page's position onwards.
    fn open(home: &dyn FileStorage, ask: &LogPageQuery) -> Result<Self> {
        let wanted = RowFilter {
            from: ask.after.clone(),
            ..RowFilter::for_filter(ask.filter.within_day(ask.day))
        };
        Ok(Self {
            stream: open(home, &wanted)?,
            together: VecDeque::new(),
            ahead: None,
        })
    }

    /// Puts a row back: it is the next one again.
    fn put_back(&mut self, row: (NodeId, NumberedRow)) {
        self.together.push_front(row);
    }

    fn next(&mut self) -> Result<Option<(NodeId, NumberedRow)>> {
        if let Some(row) = self.together.pop_front() {
            return Ok(Some(row));
        }
        let Some(first) = self.read()? else { return Ok(None) };
        self.ahead = self.stream.next_with_lane()?;
        if !self.ahead.as_ref().is_some_and(|ahead| has_same_time(&first, ahead)) {
            return Ok(Some(first));
        }
        let mut all = vec![first];
        while let Some(row) = self.read()? {
            if all.first().is_some_and(|first| has_same_time(first, &row)) {
                all.push(row);
            } else {
                self.ahead = Some(row);
                break;
            }
        }
        all.sort_by(|(_, one), (_, other)| one.row.request_id.cmp(&other.row.request_id));
        self.together = all.into();
        Ok(self.together.pop_front())
    }

    fn read(&mut self) -> Result<Option<(NodeId, NumberedRow)>> {
        match self.ahead.take() {
            Some(row) => Ok(Some(row)),
            None => self.stream.next_with_lane(),
        }
    }
}

fn has_same_time((_, one): &(NodeId, NumberedRow), (_, other): &(NodeId, NumberedRow)) -> bool {
    one.row.time_ms == other.row.time_ms && one.row.account == other.row.account
}
