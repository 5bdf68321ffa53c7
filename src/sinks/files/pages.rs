//! Pages of the rows of a day, in the order that the log has everywhere.

use std::{
    collections::VecDeque,
    ops::RangeInclusive,
    sync::atomic::{AtomicU64, Ordering},
};

use parking_lot::Mutex;
use parquet::errors::Result;

use super::{query, storage::Storage, stream::Stream, wanted::Wanted};
use crate::{
    domain::{
        keys::key::KeyId,
        ledger::{
            NodeId,
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
                at: ask.after.clone(),
                added,
                rows: InOrder::open(home, ask)?,
            },
        };
        let mut found: Vec<(NodeId, NumberedRow)> = Vec::new();
        loop {
            let Some((lane, numbered)) = reader.rows.next()? else {
                // There are no others, however many these are.
                return Ok(LogPage::of(found, usize::MAX));
            };
            let row = &numbered.row;
            if log_place::order(row) <= ask.after.order() || !ask.filter.takes(row) {
                continue;
            }
            if let Some((_, last)) = found.last().filter(|_| found.len() >= limit)
                && log_place::order(&last.row) != log_place::order(row)
            {
                reader.rows.put_back((lane, numbered));
                break;
            }
            found.push((lane, numbered));
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

/// Rows by account, time and request. Files have those of one account and millisecond by number: they are put in order here,
/// and are few.
struct InOrder {
    stream: Stream,
    /// Of one account and time.
    together: VecDeque<(NodeId, NumberedRow)>,
    ahead: Option<(NodeId, NumberedRow)>,
}

impl InOrder {
    /// What a page is made of, of whatever files have it now, from the account and time of its place on.
    fn open(home: &dyn Storage, ask: &PageAsk) -> Result<Self> {
        let wanted = Wanted {
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
    fn put_back(&mut self, row: (NodeId, NumberedRow)) {
        self.together.push_front(row);
    }

    fn next(&mut self) -> Result<Option<(NodeId, NumberedRow)>> {
        if let Some(row) = self.together.pop_front() {
            return Ok(Some(row));
        }
        let Some(first) = self.read()? else { return Ok(None) };
        self.ahead = self.stream.next_of_lane()?;
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
        all.sort_by(|(_, one), (_, other)| one.row.request_id.cmp(&other.row.request_id));
        self.together = all.into();
        Ok(self.together.pop_front())
    }

    fn read(&mut self) -> Result<Option<(NodeId, NumberedRow)>> {
        match self.ahead.take() {
            Some(row) => Ok(Some(row)),
            None => self.stream.next_of_lane(),
        }
    }
}

fn are_together((_, one): &(NodeId, NumberedRow), (_, other): &(NodeId, NumberedRow)) -> bool {
    one.row.time_ms == other.row.time_ms && one.row.account == other.row.account
}
