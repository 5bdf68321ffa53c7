//! Merges the matching rows of all log backends and of the tails into one order.

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
    sinks::{LogBackend, LogPageQuery, PAGE_ROWS_MAX, RowPage},
};

/// A position in the log: rows up to it have been read. It remains valid when rows are added or removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LogCursor {
    /// The day, in days since the Unix epoch (UTC).
    pub(crate) day: i64,
    /// The position of the day's row that was read most recently, or the position before all rows of the day.
    pub(crate) place: LogPosition,
}

impl LogCursor {
    /// Returns the position before all rows that match a filter.
    pub(crate) fn before(filter: &LogFilter) -> Self {
        Self {
            day: filter.first_day(),
            place: LogPosition::default(),
        }
    }
}

/// Reads rows day by day, and within a day in the order of [`LogPosition`]. Keeps in memory up to [`PAGE_ROWS_MAX`] rows of each
/// log backend, the data that the log backends use to find rows, and the rows that the log backend has not acknowledged.
///
/// Finds all rows that were on disk when the reading of their day began. A row that moves meanwhile is not missed, because each
/// place is read before the place to which its rows move.
pub(crate) struct LogRows {
    reading: Arc<LogReader>,
    filter: LogFilter,
    at: LogCursor,
    began: Instant,
    /// The deadline at which scanning stops; `None` for no deadline.
    until: Option<Instant>,
    /// The merge of the current day's rows. `None` if it has not begun.
    day: Option<DayMerge>,
    looked_at: usize,
}

impl LogReader {
    /// Creates a reader of the rows that match a filter and that are after the position `from`.
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
    /// Makes scanning stop soon after this time, even if no row has matched the filter yet. The next call continues from there.
    pub(crate) fn with_deadline(mut self, until: Instant) -> Self {
        self.until = Some(until);
        self
    }

    /// Returns the number of scanned rows that the next call need not scan again. Counts only rows of the account at which the
    /// next call begins. Returns 0 if this account has no more rows.
    pub(crate) fn looked_at(&self) -> usize {
        self.looked_at
    }

    /// Returns the position after which the next rows are read. `None` if all rows have been read.
    pub(crate) fn cursor(&self) -> Option<&LogCursor> {
        (self.at.day <= self.filter.last_day()).then_some(&self.at)
    }

    /// Reads the next rows, at most `limit`. If it returns fewer rows or none, there may still be unread rows: see
    /// [`LogRows::cursor`].
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
            // The same row may be in several places, or twice in one.
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

/// The unreturned rows of one day, by the place that they come from.
struct DayMerge {
    pending: BinaryHeap<Reverse<OrderedRow>>,
    backends: Vec<BackendReader>,
}

/// A row that is ordered by its position in the log.
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

/// Reads the rows of one day from a log backend.
struct BackendReader {
    home: Arc<dyn LogBackend>,
    rows: VecDeque<Row>,
    /// The position up to which rows were read. `None` if all were read.
    next: Option<LogPosition>,
    /// Whether scanning stopped because of its deadline.
    is_late: bool,
    looked_at: usize,
}

impl BackendReader {
    /// Begins after the position `after`.
    fn new(home: Arc<dyn LogBackend>, after: &LogPosition) -> Self {
        Self {
            home,
            rows: VecDeque::new(),
            next: Some(after.clone()),
            is_late: false,
            looked_at: 0,
        }
    }

    /// Reads the next page if all rows of the previous page were taken. Returns whether it has read a page.
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

    /// Returns the position up to which rows were read, if no rows are in memory and more may follow. Otherwise returns `None`.
    fn stops_at(&self) -> Option<&LogPosition> {
        self.next.as_ref().filter(|_| self.rows.is_empty())
    }
}

impl DayMerge {
    /// Reads the next page of each log backend that has no rows in memory.
    async fn read(&mut self, ask: LogPageQuery) -> Result<(), LogReadError> {
        let mut has_read = false;
        for of_home in &mut self.backends {
            if has_read {
                // The reading restarts, because rows may have moved here from the former log backend after the previous page was
                // read.
                *of_home = BackendReader::new(Arc::clone(&of_home.home), &ask.after);
            }
            has_read |= of_home.read(&ask).await?;
        }
        Ok(())
    }

    /// Takes the row that is first in the order among the rows of all places. Removes this row and returns it. Returns `None` if
    /// no rows are left, or if a log backend must be read first because its next unread row may be earlier.
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

    /// Returns the position up to which rows can be returned before a log backend must be read again. `None` if there is no such
    /// limit.
    fn stops_at(&self) -> Option<LogPosition> {
        self.backends.iter().filter_map(BackendReader::stops_at).min().cloned()
    }

    fn looked_at(&self) -> usize {
        self.backends.iter().map(|of| of.looked_at).max().unwrap_or(0)
    }
}
