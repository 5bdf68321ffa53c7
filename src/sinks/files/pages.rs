//! Pages of the rows of a day, in the order that the log has everywhere.

use std::{
    collections::VecDeque,
    ops::RangeInclusive,
    sync::atomic::{AtomicU64, Ordering},
};

use parking_lot::Mutex;
use parquet::errors::Result;

use super::{
    query,
    storage::Storage,
    stream::Stream,
    wanted::{Columns, Wanted},
};
use crate::{
    domain::{
        keys::key::KeyId,
        ledger::{
            consumption::Row,
            log_filter::LogFilter,
            log_place::{self, LogPlace},
        },
    },
    journal::NumberedRow,
    sinks::asks::{LogPage, PAGE_ROWS_MAX, PageAsk},
};

/// How many readers may come back for the next page without having the files opened again.
const KEPT_MAX: usize = 4;

/// Readers in the middle of a day, those that were asked last at the end.
#[derive(Default)]
pub(super) struct Pages {
    kept: Mutex<Vec<Reader>>,
    /// How often this process has added a file. A reader from before lacks its rows.
    added: AtomicU64,
}

/// A place in the rows of a day.
struct Reader {
    filter: LogFilter,
    day: i64,
    columns: Columns,
    /// The last row that was read.
    at: LogPlace,
    /// [`Pages::added`], when the files were opened.
    added: u64,
    rows: InOrder,
}

impl Pages {
    /// A page of a day. Blocks on the disk.
    pub(super) fn page(&self, home: &dyn Storage, ask: &PageAsk) -> Result<LogPage> {
        let limit = ask.limit.min(PAGE_ROWS_MAX);
        // Read before the files are looked for: one that comes meanwhile makes the reader an old one.
        let added = self.added.load(Ordering::SeqCst);
        let mut reader = match self.take(ask, added) {
            Some(reader) => reader,
            None => Reader {
                filter: ask.filter.clone(),
                day: ask.day,
                columns: columns(ask),
                at: ask.after.clone(),
                added,
                rows: InOrder::open(home, ask)?,
            },
        };
        let mut found: Vec<Row> = Vec::new();
        loop {
            let Some(row) = reader.rows.next()? else {
                return Ok(LogPage {
                    rows: found,
                    ..LogPage::default()
                });
            };
            if log_place::order(&row) <= ask.after.order() || !ask.filter.takes(&row) {
                continue;
            }
            if let Some(last) = found.last().filter(|_| found.len() >= limit)
                && log_place::order(last) != log_place::order(&row)
            {
                reader.rows.put_back(row);
                break;
            }
            found.push(row);
        }
        let page = LogPage::of(found, limit);
        if let Some(last) = &page.next {
            reader.at.clone_from(last);
            self.keep(reader);
        }
        Ok(page)
    }

    /// A file has been added: rows that were elsewhere until now are only found by readers that begin later.
    pub(super) fn forget(&self) {
        self.added.fetch_add(1, Ordering::SeqCst);
        self.kept.lock().clear();
    }

    fn take(&self, ask: &PageAsk, added: u64) -> Option<Reader> {
        let mut kept = self.kept.lock();
        let goes_on = |reader: &Reader| {
            reader.added == added
                && reader.day == ask.day
                && reader.at == ask.after
                && reader.columns == columns(ask)
                && ask.filter.is_end_of(&reader.filter)
        };
        let index = kept.iter().position(goes_on)?;
        Some(kept.remove(index))
    }

    fn keep(&self, reader: Reader) {
        let mut kept = self.kept.lock();
        if kept.len() == KEPT_MAX {
            kept.remove(0);
        }
        kept.push(reader);
    }
}

fn columns(ask: &PageAsk) -> Columns {
    if ask.counted_only {
        Columns::Counted
    } else {
        Columns::All
    }
}

/// The last rows of a key that ended on one of these days, the latest first, at most `limit`.
pub(super) fn latest(
    home: &dyn Storage,
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
        let mut rows = InOrder::open(home, &PageAsk::new(filter, day, limit))?;
        let (mut last, left) = (VecDeque::new(), limit.saturating_sub(found.len()));
        if left == 0 {
            break;
        }
        while let Some(row) = rows.next()? {
            if last.len() == left {
                last.pop_front();
            }
            last.push_back(row);
        }
        found.extend(last.into_iter().rev());
    }
    Ok(found)
}

/// Rows by account, time and request. Files have those of one account and millisecond by number: they are put in order here,
/// and are few.
struct InOrder {
    stream: Stream,
    /// Of one account and time.
    together: VecDeque<Row>,
    ahead: Option<Row>,
}

impl InOrder {
    /// What a page is made of, of whatever files have it now, from the account and time of its place on.
    fn open(home: &dyn Storage, ask: &PageAsk) -> Result<Self> {
        let wanted = Wanted {
            columns: columns(ask),
            from: ask.after.clone(),
            ..Wanted::all(ask.filter.on(ask.day))
        };
        Ok(Self {
            stream: query::open(home, &wanted)?,
            together: VecDeque::new(),
            ahead: None,
        })
    }

    /// The next row is this one.
    fn put_back(&mut self, row: Row) {
        self.together.push_front(row);
    }

    fn next(&mut self) -> Result<Option<Row>> {
        if let Some(row) = self.together.pop_front() {
            return Ok(Some(row));
        }
        let Some(first) = self.read()? else { return Ok(None) };
        self.ahead = self.stream.next()?.map(|NumberedRow { row, .. }| row);
        if !self.ahead.as_ref().is_some_and(|ahead| are_together(&first, ahead)) {
            return Ok(Some(first));
        }
        let mut all = vec![first];
        while let Some(row) = self.read()? {
            if all.first().is_some_and(|first| are_together(first, &row)) {
                all.push(row);
            } else {
                self.ahead = Some(row);
                break;
            }
        }
        all.sort_by(|one, other| one.request_id.cmp(&other.request_id));
        self.together = all.into();
        Ok(self.together.pop_front())
    }

    fn read(&mut self) -> Result<Option<Row>> {
        match self.ahead.take() {
            Some(row) => Ok(Some(row)),
            None => Ok(self.stream.next()?.map(|NumberedRow { row, .. }| row)),
        }
    }
}

fn are_together(one: &Row, other: &Row) -> bool {
    one.time_ms == other.time_ms && one.account == other.account
}
