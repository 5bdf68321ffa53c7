//! Reads pages of a day's rows from the log files that may contain them.

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
        keys::KeyId,
        ledger::{
            NodeId,
            consumption::Row,
            log_query::{self, LogFilter, LogPosition},
        },
    },
    journal::NumberedRow,
    sinks::{
        LogPageQuery, PAGE_ROWS_MAX, RowPage,
        files::{self, FileName, group::RowFilter, storage::FileStorage, stream::RowStream, table::TableReader},
    },
};

/// The maximum number of attempts to list and open files. An attempt fails if files are merged or removed meanwhile.
const ATTEMPTS_MAX: usize = 5;

/// Opens the files that currently have a day's rows, and returns the rows that match a filter.
pub(super) fn open(home: &dyn FileStorage, wanted: &RowFilter) -> Result<RowStream> {
    let mut attempts = ATTEMPTS_MAX;
    loop {
        attempts -= 1;
        match open_tables(home, wanted) {
            Ok(Some(tables)) => return RowStream::open(tables, Some(wanted)),
            Ok(None) if attempts > 0 => {}
            Ok(None) => {
                let what = "cannot open the log files of the day, because they are merged or removed faster than they can be opened; try again";
                return Err(ParquetError::General(what.to_owned()));
            }
            Err(error) if attempts > 0 && is_missing(&error) => {}
            Err(error) => return Err(error),
        }
    }
}

/// Opens the files that may have matching rows. Returns `None` if the list of files has changed meanwhile, because a list that is
/// made during a change may contain neither the old nor the new files.
fn open_tables(home: &dyn FileStorage, wanted: &RowFilter) -> Result<Option<Vec<TableReader>>> {
    let places = candidate_files(home, &wanted.filter)?;
    let tables = places.iter().map(|place| home.open(place));
    let tables = tables.collect::<Result<Vec<_>>>()?;
    Ok((candidate_files(home, &wanted.filter)? == places).then_some(tables))
}

/// Returns the files that may have rows of the filter's day. A file can also contain late rows of the previous day. Therefore the
/// files of the day after the filter's day are included.
fn candidate_files(home: &dyn FileStorage, filter: &LogFilter) -> io::Result<Vec<FileName>> {
    let day = files::day_of(filter.since_ms);
    let mut places = home.unmerged_files(day)?;
    if let Ok(next) = day.tomorrow() {
        places.extend(home.unmerged_files(next)?);
    }
    Ok(places)
}

/// Returns whether an error says that a file no longer exists. Such a file was removed, because it was merged into another one or
/// was too old.
pub(super) fn is_missing(error: &ParquetError) -> bool {
    let ParquetError::External(error) = error else {
        return false;
    };
    let error = error.downcast_ref::<io::Error>();
    error.is_some_and(|error| error.kind() == io::ErrorKind::NotFound)
}

/// The maximum number of day readers that stay open for their next page.
const KEPT_MAX: usize = 4;

/// Reads pages of a day's rows with day readers. A day reader that has not reached the end of its day stays open for the next
/// page. In the list of open day readers, the most recently used ones are last.
#[derive(Default)]
pub(super) struct PageReader {
    kept: Mutex<Vec<DayReader>>,
    /// The number of files that this process has added. If this number has increased after a day reader was opened, the reader
    /// lacks the rows of the new files.
    added: AtomicU64,
}

/// Reads the rows of one day that match a filter.
struct DayReader {
    filter: LogFilter,
    day: i64,
    /// The position of the row that was read most recently.
    at: LogPosition,
    /// The value of [`PageReader::added`] when this reader opened its files.
    added: u64,
    rows: OrderedRows,
}

impl PageReader {
    /// Reads one page of the rows of a day. Blocks on the disk.
    pub(super) fn page(&self, home: &dyn FileStorage, ask: &LogPageQuery) -> Result<RowPage> {
        let limit = ask.limit.min(PAGE_ROWS_MAX);
        // The number is read before the files are listed. So a file that is added in between makes the day reader outdated.
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
                // The day has ended. `usize::MAX` makes this the last page even if it is full.
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

    /// Closes all day readers. Called after a file was added, because open readers lack its rows.
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

/// Reads the most recent rows of a key, at most `limit`. Reads only rows whose requests ended on one of `days`. The most recent
/// row comes first.
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

/// Returns rows in the order of account, time and request id. In the files, rows with the same account and time are in the order
/// of their numbers, so these few rows are sorted again here.
struct OrderedRows {
    stream: RowStream,
    /// The unread rows of one account and time, sorted.
    together: VecDeque<(NodeId, NumberedRow)>,
    ahead: Option<(NodeId, NumberedRow)>,
}

impl OrderedRows {
    /// Opens the files that currently have the rows of a page. The rows begin at the account and time of the page's position.
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

    /// Puts a row back at the front, so it is read next.
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
