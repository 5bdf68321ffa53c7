//! The store's rows of an account and day, by time. The store has them in the order in which they were settled, which is nearly
//! the same, so the rows themselves are read again when it is their turn.

use std::{
    collections::{BTreeMap, VecDeque},
    ops::Bound,
    time::Instant,
};

use smol_str::SmolStr;

use crate::{
    domain::ledger::{
        consumption::Row,
        log_filter::LogFilter,
        log_place::{self, LogPlace},
    },
    sinks::asks::is_over,
    store::{
        StoreError,
        ledger::{LOG_ROWS_MAX, LogLists},
    },
};

/// The most rows whose places are in memory, some 100 bytes each. Of a day with more the first ones are, and when these have been
/// read, the next ones.
pub(super) const PLACES_MAX: usize = 200_000;
/// Pieces of up to [`LOG_ROWS_MAX`] rows in memory: a day with fewer is read once.
const PIECES_MAX: usize = 8;
/// How often a day is looked through again because rows of it have left the store meanwhile.
const ATTEMPTS_MAX: usize = 8;

/// How a look through the store's rows ended.
enum Looked {
    Through,
    /// The time was over. What has been looked at is remembered.
    InPart,
    /// Rows that had been looked at are not where they were.
    Moved,
}

/// Where the rows are that a filter takes.
pub(super) struct AccountDay {
    filter: LogFilter,
    account: String,
    day: i64,
    places_max: usize,
    /// All rows behind this place are in `places`, unless there are too many.
    from: (i64, SmolStr),
    /// The last row that was given.
    at: (i64, SmolStr),
    /// When a row ended and its request, and where it stands in the store.
    places: BTreeMap<(i64, SmolStr), usize>,
    /// There are further ones behind them.
    more: bool,
    /// How many of the store's rows have been looked at, and the last of them.
    seen: usize,
    last_seen: LogPlace,
    /// Rows that follow each other, and where the first of them stands.
    pieces: VecDeque<(usize, Vec<Row>)>,
}

impl AccountDay {
    pub(super) fn new(filter: &LogFilter, account: &str, day: i64, places_max: usize) -> Self {
        let nowhere = (i64::MIN, SmolStr::default());
        Self {
            filter: filter.clone(),
            account: account.to_owned(),
            day,
            places_max,
            from: nowhere.clone(),
            at: nowhere,
            places: BTreeMap::new(),
            more: false,
            seen: 0,
            last_seen: LogPlace::default(),
            pieces: VecDeque::new(),
        }
    }

    /// Whether it has what a filter takes of an account and day.
    pub(super) fn has(&self, filter: &LogFilter, account: &str, day: i64) -> bool {
        self.day == day && self.account == account && filter.is_end_of(&self.filter)
    }

    /// Goes on behind a place, with what a filter takes that asks for no more than the one before.
    pub(super) fn go_to(&mut self, filter: &LogFilter, place: &LogPlace) {
        self.filter = filter.clone();
        // Rows may have become too old meanwhile.
        self.at = (filter.since_ms, SmolStr::default());
        if place.account == self.account {
            self.at = (place.time_ms, place.request_id.clone()).max(self.at.clone());
        }
        if self.at < self.from || self.seen == 0 {
            self.forget();
        }
    }

    /// The next rows, at most `limit` and [`LOG_ROWS_MAX`]; none at the end. `None`: the day has not been looked through, and the
    /// time is over. Then it goes on where it was, some rows further each time.
    pub(super) async fn next(
        &mut self,
        lists: &dyn LogLists,
        limit: usize,
        until: Option<Instant>,
    ) -> Result<Option<Vec<Row>>, StoreError> {
        let limit = limit.min(LOG_ROWS_MAX);
        for _ in 0..ATTEMPTS_MAX {
            match self.look(lists, until).await? {
                Looked::Through => {}
                Looked::InPart => return Ok(None),
                Looked::Moved => {
                    self.forget();
                    continue;
                }
            }
            let next = self.ahead().take(limit);
            let next: Vec<((i64, SmolStr), usize)> = next.map(|(key, place)| (key.clone(), *place)).collect();
            if let Some(rows) = self.read(lists, &next).await? {
                if let Some((last, _)) = next.into_iter().next_back() {
                    self.at = last;
                }
                if !rows.is_empty() || !self.more {
                    return Ok(Some(rows));
                }
            }
            self.forget();
        }
        Err(StoreError::Busy(format!(
            "rows of account `{}` change their places faster than they are read; try again later",
            self.account
        )))
    }

    /// How many of the store's rows have been looked at.
    pub(super) fn seen(&self) -> usize {
        self.seen
    }

    /// Whether there was more behind what was given, when the store was looked at last.
    pub(super) fn has_more(&self) -> bool {
        self.more || self.ahead().next().is_some()
    }

    fn ahead(&self) -> impl Iterator<Item = (&(i64, SmolStr), &usize)> {
        self.places.range((Bound::Excluded(self.at.clone()), Bound::Unbounded))
    }

    /// Begins anew, behind what was given last.
    fn forget(&mut self) {
        self.from = self.at.clone();
        self.places.clear();
        self.pieces.clear();
        self.more = false;
        self.seen = 0;
    }

    /// Looks at the store's rows that have not been looked at.
    async fn look(&mut self, lists: &dyn LogLists, until: Option<Instant>) -> Result<Looked, StoreError> {
        loop {
            let known = usize::from(self.seen > 0);
            let first = self.seen - known;
            let rows = lists.rows(&self.account, self.day, first, LOG_ROWS_MAX).await?;
            if known == 1 && rows.first().is_none_or(|row| LogPlace::of(row) != self.last_seen) {
                return Ok(Looked::Moved);
            }
            for (place, row) in std::iter::zip(first.., &rows).skip(known) {
                let (_, time_ms, id) = log_place::order(row);
                if (time_ms, id) > (self.from.0, self.from.1.as_str()) && self.filter.takes(row) {
                    self.places.insert((time_ms, id.into()), place);
                }
                if self.places.len() > self.places_max {
                    self.places.pop_last();
                    self.more = true;
                }
            }
            let count = rows.len();
            if let Some(last) = rows.last() {
                self.last_seen = LogPlace::of(last);
            }
            self.seen = first + count;
            if count > known {
                self.remember(first, rows);
            }
            if count < LOG_ROWS_MAX {
                return Ok(Looked::Through);
            }
            if is_over(until) {
                return Ok(Looked::InPart);
            }
        }
    }

    /// The rows at these places; `None`: others are there, or none.
    async fn read(
        &mut self,
        lists: &dyn LogLists,
        wanted: &[((i64, SmolStr), usize)],
    ) -> Result<Option<Vec<Row>>, StoreError> {
        let mut found = Vec::with_capacity(wanted.len());
        for ((time_ms, id), place) in wanted {
            if self.row(*place).is_none() {
                let rows = lists.rows(&self.account, self.day, *place, LOG_ROWS_MAX).await?;
                self.remember(*place, rows);
            }
            let row = self.row(*place);
            match row.filter(|row| row.time_ms == *time_ms && row.request_id == *id) {
                Some(row) => found.push(row.clone()),
                None => return Ok(None),
            }
        }
        Ok(Some(found))
    }

    fn row(&self, place: usize) -> Option<&Row> {
        let mut rows = self.pieces.iter().rev();
        rows.find_map(|(first, rows)| rows.get(place.checked_sub(*first)?))
    }

    fn remember(&mut self, first: usize, rows: Vec<Row>) {
        if self.pieces.len() == PIECES_MAX {
            self.pieces.pop_front();
        }
        self.pieces.push_back((first, rows));
    }
}
