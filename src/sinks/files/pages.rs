//! Pages of the rows of a day, in the order that the log has everywhere.

use std::{collections::VecDeque, ops::RangeInclusive};

use parking_lot::Mutex;
use parquet::errors::Result;

use super::{query, storage::Storage, stream::Stream, wanted::Wanted};
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
};

/// How many readers may come back for the next page without having the files opened again.
const KEPT_MAX: usize = 4;

/// Readers in the middle of a day, those that were asked last at the end.
#[derive(Default)]
pub(super) struct Pages(Mutex<Vec<Reader>>);

/// A place in the rows of a day.
struct Reader {
    filter: LogFilter,
    day: i64,
    /// The last row that was read.
    at: LogPlace,
    rows: InOrder,
}

impl Pages {
    /// The first rows of a day behind a place that the filter takes, at most `limit`.
    pub(super) fn page(
        &self,
        home: &dyn Storage,
        filter: &LogFilter,
        day: i64,
        after: &LogPlace,
        limit: usize,
    ) -> Result<Vec<Row>> {
        let mut reader = match self.take(filter, day, after) {
            Some(reader) => reader,
            None => Reader {
                filter: filter.clone(),
                day,
                at: after.clone(),
                rows: InOrder::open(home, filter.on(day), after.clone())?,
            },
        };
        let mut found = Vec::new();
        while found.len() < limit {
            let Some(row) = reader.rows.next()? else {
                return Ok(found);
            };
            if log_place::order(&row) > after.order() && filter.takes(&row) {
                found.push(row);
            }
        }
        if let Some(last) = found.last() {
            reader.at = LogPlace::of(last);
            self.keep(reader);
        }
        Ok(found)
    }

    fn take(&self, filter: &LogFilter, day: i64, after: &LogPlace) -> Option<Reader> {
        let mut kept = self.0.lock();
        let goes_on = |reader: &Reader| reader.day == day && reader.at == *after && filter.is_end_of(&reader.filter);
        let index = kept.iter().position(goes_on)?;
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
        let mut rows = InOrder::open(home, filter, LogPlace::default())?;
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
    /// What a filter takes of whatever files have it now, from the account and time of a place on.
    fn open(home: &dyn Storage, filter: LogFilter, from: LogPlace) -> Result<Self> {
        let wanted = Wanted {
            from,
            ..Wanted::all(filter)
        };
        Ok(Self {
            stream: query::open(home, &wanted)?,
            together: VecDeque::new(),
            ahead: None,
        })
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
