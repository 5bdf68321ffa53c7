//! The rows that a filter takes, of the homes and of those on their way there, brought together.

use std::{
    cmp::{Ordering, Reverse},
    collections::{BinaryHeap, VecDeque},
    sync::Arc,
    time::Instant,
};

use super::{LogReadError, LogReading};
use crate::{
    domain::ledger::{
        consumption::Row,
        log_filter::LogFilter,
        log_place::{self, LogPlace},
    },
    edges::clock,
    journal::NumberedRow,
    sinks::{
        asks::{LogPage, PAGE_ROWS_MAX, PageAsk},
        home::LogHome,
    },
};

/// A place in the log: what is before it has been read. It stays valid while rows come and go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LogCursor {
    /// Days since the Unix epoch, UTC.
    pub(crate) day: i64,
    /// The last row of the day that was read, or the place before all.
    pub(crate) place: LogPlace,
}

impl LogCursor {
    /// Before all rows that a filter takes.
    pub(crate) fn before(filter: &LogFilter) -> Self {
        Self {
            day: filter.first_day(),
            place: LogPlace::default(),
        }
    }
}

/// Reads rows in the order of days, and within a day in that of [`LogPlace`]. Up to [`PAGE_ROWS_MAX`] rows of each home are in memory,
/// besides what finds them, and those that are on their way to the home.
///
/// All rows are read that were on disk when the reading of their day began. One that goes over meanwhile is in one of the places: each is
/// looked at before the one that its rows go over to.
pub(crate) struct LogRows {
    reading: Arc<LogReading>,
    filter: LogFilter,
    at: LogCursor,
    began: Instant,
    /// When it is to stop looking.
    until: Option<Instant>,
    /// What is under way of the day at the cursor.
    day: Option<Day>,
    looked_at: usize,
}

impl LogReading {
    /// The rows that a filter takes, behind a place.
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
    /// The same, which looks for rows until this time: however many there are that the filter does not take, each look ends soon
    /// after it, and the next one goes on further on.
    pub(crate) fn within(mut self, until: Instant) -> Self {
        self.until = Some(until);
        self
    }

    /// How many rows of the account at the cursor were looked at without coming to their end; the next look knows them.
    pub(crate) fn looked_at(&self) -> usize {
        self.looked_at
    }

    /// Where it goes on; `None`: all has been read.
    pub(crate) fn cursor(&self) -> Option<&LogCursor> {
        (self.at.day <= self.filter.last_day()).then_some(&self.at)
    }

    /// The next rows, at most `limit`. Fewer, also none, are no sign of the end: that is [`LogRows::cursor`].
    pub(crate) async fn next(&mut self, limit: usize) -> Result<Vec<Row>, LogReadError> {
        let mut found = Vec::new();
        if self.cursor().is_none() {
            return Ok(found);
        }
        let mut day = match self.day.take() {
            Some(day) => day,
            None => self.begin().await?,
        };
        while found.len() < limit {
            let ask = PageAsk {
                after: self.at.place.clone(),
                began: self.began,
                until: self.until,
                ..PageAsk::new(
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
            // A row may be in several places, and in one of them twice.
            if log_place::order(&row) > self.at.place.order() {
                self.at.place.go_to(&row);
                found.push(row);
            }
        }
        self.day = Some(day);
        Ok(found)
    }

    async fn begin(&self) -> Result<Day, LogReadError> {
        let on_their_way = self.reading.on_their_way(&self.filter.on(self.at.day)).await?;
        let behind = on_their_way
            .into_iter()
            .filter(|row| log_place::order(&row.row) > self.at.place.order());
        let homes = self.reading.homes();
        Ok(Day {
            on_their_way: behind.map(|row| Reverse(Placed(row))).collect(),
            homes: homes
                .map(|home| OfHome::new(Arc::clone(home), &self.at.place))
                .collect(),
        })
    }

    fn end_day(&mut self) {
        self.at = LogCursor {
            day: self.at.day.saturating_add(1),
            place: LogPlace::default(),
        };
    }
}

/// What has been read of a day and not been given, of each place.
struct Day {
    on_their_way: BinaryHeap<Reverse<Placed>>,
    homes: Vec<OfHome>,
}

/// A row among others by its place.
struct Placed(Arc<NumberedRow>);

impl Placed {
    fn order(&self) -> (&str, i64, &str) {
        log_place::order(&self.0.row)
    }
}

impl PartialEq for Placed {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Placed {}

impl PartialOrd for Placed {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Placed {
    fn cmp(&self, other: &Self) -> Ordering {
        self.order().cmp(&other.order())
    }
}

struct OfHome {
    home: Arc<dyn LogHome>,
    rows: VecDeque<Row>,
    /// All up to here has been read; `None`: all.
    next: Option<LogPlace>,
    /// It ran out of time.
    is_late: bool,
    looked_at: usize,
}

impl OfHome {
    /// Behind a place.
    fn new(home: Arc<dyn LogHome>, after: &LogPlace) -> Self {
        Self {
            home,
            rows: VecDeque::new(),
            next: Some(after.clone()),
            is_late: false,
            looked_at: 0,
        }
    }

    /// Reads on, if nothing is left of what was read. Says whether it has.
    async fn read(&mut self, ask: &PageAsk) -> Result<bool, LogReadError> {
        let Some(after) = self.next.take_if(|_| self.rows.is_empty() && !self.is_late) else {
            return Ok(false);
        };
        let ask = PageAsk { after, ..ask.clone() };
        let LogPage {
            rows, next, looked_at, ..
        } = self.home.page(&ask).await?;
        self.is_late = next.is_some() && rows.len() < ask.limit;
        self.rows = rows.into();
        self.next = next;
        self.looked_at = looked_at;
        Ok(true)
    }

    /// Where it has stopped without rows to give, though there may be some.
    fn stops_at(&self) -> Option<&LogPlace> {
        self.next.as_ref().filter(|_| self.rows.is_empty())
    }
}

impl Day {
    /// Reads on wherever nothing is left of what was read.
    async fn read(&mut self, ask: PageAsk) -> Result<(), LogReadError> {
        let mut has_read = false;
        for of_home in &mut self.homes {
            if has_read {
                // What has come over from the home before this look was not here yet when this one was read.
                *of_home = OfHome::new(Arc::clone(&of_home.home), &ask.after);
            }
            has_read |= of_home.read(&ask).await?;
        }
        Ok(())
    }

    /// The next row of all. Where one of them has stopped, none that might come behind what it has yet to give.
    fn pop(&mut self) -> Option<Row> {
        let stops_at = self.stops_at();
        let heads = self.homes.iter().enumerate();
        let heads = heads.filter_map(|(index, of)| Some((log_place::order(of.rows.front()?), Some(index))));
        let on_its_way = self.on_their_way.peek().map(|Reverse(first)| (first.order(), None));
        let (order, index) = heads.chain(on_its_way).min()?;
        if stops_at.is_some_and(|place| order > place.order()) {
            return None;
        }
        match index {
            Some(index) => self.homes.get_mut(index)?.rows.pop_front(),
            None => self.on_their_way.pop().map(|Reverse(Placed(row))| row.row.clone()),
        }
    }

    /// The place behind which nothing can be given before one of them is read on.
    fn stops_at(&self) -> Option<LogPlace> {
        self.homes.iter().filter_map(OfHome::stops_at).min().cloned()
    }

    fn looked_at(&self) -> usize {
        self.homes.iter().map(|of| of.looked_at).max().unwrap_or(0)
    }
}
