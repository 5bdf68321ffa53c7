//! Merges the matching rows of the log backends and of those on their way there.

use std::{
    cmp::{Ordering, Reverse},
    collections::{BinaryHeap, VecDeque},
    sync::Arc,
    time::Instant,
};

use super::{LogReadError, LogReader};
use crate::{
    domain::ledger::{
        consumption::Row,
        log_query::{self, LogFilter, LogPosition},
    },
    edges::clock,
    journal::NumberedRow,
    sinks::{
        LogBackend,
        asks::{LogPageQuery, PAGE_ROWS_MAX, RowPage},
    },
};

/// A position in the log, up to which rows have been read. It stays valid while rows come and go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LogCursor {
    /// Days since the Unix epoch, UTC.
    pub(crate) day: i64,
    /// The last row of the day that was read, or the position before all rows.
    pub(crate) place: LogPosition,
}

impl LogCursor {
    /// The position before all rows that match a filter.
    pub(crate) fn before(filter: &LogFilter) -> Self {
        Self {
            day: filter.first_day(),
            place: LogPosition::default(),
        }
    }
}

/// Reads rows by day, and within a day in the order of [`LogPosition`]. Up to [`PAGE_ROWS_MAX`] rows of each log backend are in
/// memory, in addition to what finds them and to the rows on their way there.
///
/// Finds all rows that were on disk when the reading of their day began. A row that moves meanwhile is not missed, because each
/// place is read before the one to which its rows move.
pub(crate) struct LogRows {
    reading: Arc<LogReader>,
    filter: LogFilter,
    at: LogCursor,
    began: Instant,
    /// When to stop scanning.
    until: Option<Instant>,
    /// The day at the cursor, if its reading has begun.
    day: Option<DayMerge>,
    looked_at: usize,
}

impl LogReader {
    /// Reads the rows that match a filter, after a position.
    pub(crate) fn rows(self: &Arc<Self>, filter: LogFilter, from: LogCursor) -> LogRows {
        LogRows {
            reading: Arc::clone(self),
            filter,
            at: from,
            began: clock::instant(),
            until: None,
            day: None,
            looked_at: 0,
        }
    }
}

impl LogRows {
    /// Stops scanning soon after this time, even if no row matches the filter; the next call continues from there.
    pub(crate) fn with_deadline(mut self, until: Instant) -> Self {
        self.until = Some(until);
        self
    }

    /// The scanned rows of the account at the cursor, if there are more; the next call need not scan them again.
    pub(crate) fn looked_at(&self) -> usize {
        self.looked_at
    }

    /// The position of the next rows; `None` at the end.
    pub(crate) fn cursor(&self) -> Option<&LogCursor> {
        (self.at.day <= self.filter.last_day()).then_some(&self.at)
    }

    /// Reads the next rows, at most `limit`. Fewer, or none, do not mean the end: see [`LogRows::cursor`].
    pub(crate) async fn next(&mut self, limit: usize) -> Result<Vec<Row>, LogReadError> {
        let mut found = Vec::new();
        if self.cursor().is_none() {
            return Ok(found);
        }
        let mut day = match self.day.take() {
            Some(day) => day,
            None => self.begin_day().await?,
        };
        while found.len() < limit {
            let ask = LogPageQuery {
                after: self.at.place.clone(),
                began: self.began,
                until: self.until,
                ..LogPageQuery::new(
                    self.filter.clone(),
                    self.at.day,
                    (limit - found.len()).min(PAGE_ROWS_MAX),
                )
            };
            day.read(ask).await?;
            self.looked_at = day.looked_at();
            let Some(row) = day.pop() else {
                match day.stops_at() {
                    Some(place) => self.at.place = place.max(self.at.place.clone()),
                    None => self.end_day(),
                }
                return Ok(found);
            };
            // A row may be in several places, or twice in one.
            if log_query::row_sort_key(&row) > self.at.place.sort_key() {
                self.at.place.move_to(&row);
                found.push(row);
            }
        }
        self.day = Some(day);
        Ok(found)
    }

    async fn begin_day(&self) -> Result<DayMerge, LogReadError> {
        let on_their_way = self.reading.pending_rows(&self.filter.within_day(self.at.day)).await?;
        let behind = on_their_way
            .into_iter()
            .filter(|row| log_query::row_sort_key(&row.row) > self.at.place.sort_key());
        let homes = self.reading.backends();
        Ok(DayMerge {
            pending: behind.map(|row| Reverse(OrderedRow(row))).collect(),
            backends: homes
                .map(|home| BackendReader::new(Arc::clone(home), &self.at.place))
                .collect(),
        })
    }

    fn end_day(&mut self) {
        self.at = LogCursor {
            day: self.at.day.saturating_add(1),
            place: LogPosition::default(),
        };
    }
}

/// The rows of a day that were read and not returned, by place.
struct DayMerge {
    pending: BinaryHeap<Reverse<OrderedRow>>,
    backends: Vec<BackendReader>,
}

/// A row that is ordered by its position.
struct OrderedRow(Arc<NumberedRow>);

impl OrderedRow {
    fn order(&self) -> (&str, i64, &str) {
        log_query::row_sort_key(&self.0.row)
    }
}

impl PartialEq for OrderedRow {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for OrderedRow {}

impl PartialOrd for OrderedRow {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for OrderedRow {
    fn cmp(&self, other: &Self) -> Ordering {
        self.order().cmp(&other.order())
    }
}

/// Reads a day of a log backend.
struct BackendReader {
    home: Arc<dyn LogBackend>,
    rows: VecDeque<Row>,
    /// The position up to which rows were read; `None` if all were.
    next: Option<LogPosition>,
    /// Scanning ran out of time.
    is_late: bool,
    looked_at: usize,
}

impl BackendReader {
    /// Begins after a position.
    fn new(home: Arc<dyn LogBackend>, after: &LogPosition) -> Self {
        Self {
            home,
            rows: VecDeque::new(),
            next: Some(after.clone()),
            is_late: false,
            looked_at: 0,
        }
    }

    /// Reads the next page if no rows are left; returns whether it did.
    async fn read(&mut self, ask: &LogPageQuery) -> Result<bool, LogReadError> {
        let Some(after) = self.next.take_if(|_| self.rows.is_empty() && !self.is_late) else {
            return Ok(false);
        };
        let ask = LogPageQuery { after, ..ask.clone() };
        let RowPage {
            rows, next, looked_at, ..
        } = self.home.page(&ask).await?;
        self.is_late = next.is_some() && rows.len() < ask.limit;
        self.rows = rows.into();
        self.next = next;
        self.looked_at = looked_at;
        Ok(true)
    }

    /// The position at which reading has stopped, if no rows are left but more may follow.
    fn stops_at(&self) -> Option<&LogPosition> {
        self.next.as_ref().filter(|_| self.rows.is_empty())
    }
}

impl DayMerge {
    /// Reads the next page of each log backend that has no rows left.
    async fn read(&mut self, ask: LogPageQuery) -> Result<(), LogReadError> {
        let mut has_read = false;
        for of_home in &mut self.backends {
            if has_read {
                // Rows that have moved here from the former log backend before it was read now may not have been here earlier.
                *of_home = BackendReader::new(Arc::clone(&of_home.home), &ask.after);
            }
            has_read |= of_home.read(&ask).await?;
        }
        Ok(())
    }

    /// The first row of all. `None` if an earlier one may follow in a log backend that has stopped.
    fn pop(&mut self) -> Option<Row> {
        let stops_at = self.stops_at();
        let heads = self.backends.iter().enumerate();
        let heads = heads.filter_map(|(index, of)| Some((log_query::row_sort_key(of.rows.front()?), Some(index))));
        let on_its_way = self.pending.peek().map(|Reverse(first)| (first.order(), None));
        let (order, index) = heads.chain(on_its_way).min()?;
        if stops_at.is_some_and(|place| order > place.sort_key()) {
            return None;
        }
        match index {
            Some(index) => self.backends.get_mut(index)?.rows.pop_front(),
            None => self.pending.pop().map(|Reverse(OrderedRow(row))| row.row.clone()),
        }
    }

    /// The position after which no row can be returned until a log backend has been read further.
    fn stops_at(&self) -> Option<LogPosition> {
        self.backends.iter().filter_map(BackendReader::stops_at).min().cloned()
    }

    fn looked_at(&self) -> usize {
        self.backends.iter().map(|of| of.looked_at).max().unwrap_or(0)
    }
}
