//! Reads the store's rows of an account and day in the order in which their requests ended. The store has the rows in the order
//! of their settlement, which is nearly the same order. The rows' indexes in the store are sorted in memory, and the rows are
//! fetched again when they are returned.

use std::{
    collections::{BTreeMap, VecDeque},
    ops::{Bound, RangeInclusive},
    time::Instant,
};

use futures_util::stream::{self, StreamExt, TryStreamExt};
use smol_str::SmolStr;

use crate::{
    domain::ledger::{
        consumption::Row,
        log_query::{self, LogFilter, LogPosition},
    },
    edges::clock,
    sinks::{LogPageQuery, has_passed},
    store::{
        StoreError,
        ledger::{LIST_ACCOUNTS_MAX, LOG_ROWS_MAX, LedgerStore, LogLists},
    },
};

/// The maximum number of rows whose indexes are in memory; each takes about 100 bytes. If a day has more rows, the first ones are
/// returned first, and then the day is scanned again for the next ones.
pub(super) const PLACES_MAX: usize = 200_000;
/// The maximum number of pieces in memory. Each piece has up to [`LOG_ROWS_MAX`] rows. A day with fewer pieces is fetched only
/// once.
const PIECES_MAX: usize = 8;
/// The maximum number of scans of a day for one call. A day is scanned again if rows have left the store meanwhile.
const ATTEMPTS_MAX: usize = 8;

/// The reason why a scan of the store's rows of a day ended.
enum ScanEnd {
    Complete,
    /// The deadline has passed. The next scan continues.
    TimedOut,
    /// Rows that were scanned before are no longer at their indexes.
    Moved,
}

/// The rows of an account and day that match a filter, in the order in which their requests ended.
pub(super) struct AccountDay {
    filter: LogFilter,
    account: String,
    day: i64,
    places_max: usize,
    /// The end time and the request id of a row. `places` has all rows after this one, unless there are too many.
    from: (i64, SmolStr),
    /// The end time and the request id of the row that was returned most recently.
    at: (i64, SmolStr),
    /// The index of each row in the store's list, by the row's end time and request id.
    places: BTreeMap<(i64, SmolStr), usize>,
    /// Whether there are further rows after those in `places`.
    more: bool,
    /// The number of scanned rows. `last_seen` is the position of the last scanned row.
    seen: usize,
    last_seen: LogPosition,
    /// Pieces of consecutive rows that were fetched, each with the index of its first row.
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
            last_seen: LogPosition::default(),
            pieces: VecDeque::new(),
        }
    }

    /// Returns whether this can return the rows of an account and day that match a filter.
    pub(super) fn is_for(&self, filter: &LogFilter, account: &str, day: i64) -> bool {
        self.day == day && self.account == account && filter.is_suffix_of(&self.filter)
    }

    /// Moves to the position `place`. `filter` must match only rows that the previous filter also matched.
    pub(super) fn move_to(&mut self, filter: &LogFilter, place: &LogPosition) {
        self.filter = filter.clone();
        // With the new filter, rows before its beginning are no longer returned.
        self.at = (filter.since_ms, SmolStr::default());
        if place.account == self.account {
            self.at = (place.time_ms, place.request_id.clone()).max(self.at.clone());
        }
        if self.at < self.from || self.seen == 0 {
            self.restart();
        }
    }

    /// Returns the next rows, at most `limit` and at most [`LOG_ROWS_MAX`]. Returns no rows at the end of the day. Returns `None`
    /// if the deadline `until` passes before the whole day has been scanned. The next call then continues the scan. Each call
    /// scans some rows, even if its deadline has already passed.
    pub(super) async fn next(
        &mut self,
        lists: &dyn LogLists,
        limit: usize,
        until: Option<Instant>,
    ) -> Result<Option<Vec<Row>>, StoreError> {
        let limit = limit.min(LOG_ROWS_MAX);
        for _ in 0..ATTEMPTS_MAX {
            match self.scan(lists, until).await? {
                ScanEnd::Complete => {}
                ScanEnd::TimedOut => return Ok(None),
                ScanEnd::Moved => {
                    self.restart();
                    continue;
                }
            }
            let next = self.remaining().take(limit);
            let next: Vec<((i64, SmolStr), usize)> = next.map(|(key, place)| (key.clone(), *place)).collect();
            if let Some(rows) = self.read(lists, &next).await? {
                if let Some((last, _)) = next.into_iter().next_back() {
                    self.at = last;
                }
                if !rows.is_empty() || !self.more {
                    return Ok(Some(rows));
                }
            }
            self.restart();
        }
        Err(StoreError::Busy(format!(
            "cannot read the rows of account `{}`: they are removed faster than they can be read; try again later",
            self.account
        )))
    }

    /// Returns the number of scanned rows.
    pub(super) fn scanned(&self) -> usize {
        self.seen
    }

    /// Returns whether there were unreturned rows when the day was scanned most recently.
    pub(super) fn has_more(&self) -> bool {
        self.more || self.remaining().next().is_some()
    }

    fn remaining(&self) -> impl Iterator<Item = (&(i64, SmolStr), &usize)> {
        self.places.range((Bound::Excluded(self.at.clone()), Bound::Unbounded))
    }

    /// Discards the results of scanning. The next scan begins again, and skips the rows up to the one that was returned most
    /// recently.
    fn restart(&mut self) {
        self.from = self.at.clone();
        self.places.clear();
        self.pieces.clear();
        self.more = false;
        self.seen = 0;
    }

    /// Scans the rows of the store's list that have not been scanned.
    async fn scan(&mut self, lists: &dyn LogLists, until: Option<Instant>) -> Result<ScanEnd, StoreError> {
        loop {
            let known = usize::from(self.seen > 0);
            let first = self.seen - known;
            let rows = lists.rows(&self.account, self.day, first, LOG_ROWS_MAX).await?;
            if known == 1 && rows.first().is_none_or(|row| LogPosition::of(row) != self.last_seen) {
                return Ok(ScanEnd::Moved);
            }
            for (place, row) in std::iter::zip(first.., &rows).skip(known) {
                let (_, time_ms, id) = log_query::row_sort_key(row);
                if (time_ms, id) > (self.from.0, self.from.1.as_str()) && self.filter.matches(row) {
                    self.places.insert((time_ms, id.into()), place);
                }
                if self.places.len() > self.places_max {
                    self.places.pop_last();
                    self.more = true;
                }
            }
            let count = rows.len();
            if let Some(last) = rows.last() {
                self.last_seen = LogPosition::of(last);
            }
            self.seen = first + count;
            if count > known {
                self.remember(first, rows);
            }
            if count < LOG_ROWS_MAX {
                return Ok(ScanEnd::Complete);
            }
            if has_passed(until) {
                return Ok(ScanEnd::TimedOut);
            }
        }
    }

    /// Returns the rows that `wanted` describes. Each entry of `wanted` contains the end time, the request id and the index of a
    /// row in the store's list. Returns `None` if the list now has another row at one of these indexes.
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

/// The maximum number of days in a survey. Each account and day takes four bytes of memory.
const DAYS_MAX: i64 = 31;
/// The maximum number of concurrent calls of the store.
const AT_ONCE: usize = 32;

/// The accounts that have rows in the store, by day.
pub(super) struct AccountSurvey {
    /// The account that was surveyed; `None` for all accounts.
    account: Option<String>,
    covers: RangeInclusive<i64>,
    /// The time at which the survey began.
    taken: Instant,
    accounts: Vec<String>,
    /// For each day, the accounts that have rows, as indexes into `accounts`, in ascending order.
    days: BTreeMap<i64, Vec<u32>>,
}

impl AccountSurvey {
    /// Surveys the day of a page and later days, as far as the page's filter and [`DAYS_MAX`] allow.
    pub(super) async fn read(
        (ledger, lists): (&dyn LedgerStore, &dyn LogLists),
        ask: &LogPageQuery,
    ) -> Result<Self, StoreError> {
        let last = ask
            .filter
            .last_day()
            .clamp(ask.day, ask.day.saturating_add(DAYS_MAX - 1));
        let mut survey = Self {
            account: ask.filter.account.clone(),
            covers: ask.day..=last,
            taken: clock::instant(),
            accounts: Vec::new(),
            days: BTreeMap::new(),
        };
        if let Some(account) = survey.account.clone() {
            survey.add_accounts(lists, vec![account]).await?;
            return Ok(survey);
        }
        let mut after: Option<String> = None;
        loop {
            let page = ledger.accounts(after.as_deref(), LIST_ACCOUNTS_MAX).await?;
            let Some(last) = page.last() else { return Ok(survey) };
            after = Some(last.id.clone());
            let names = page.into_iter().map(|account| account.id);
            survey.add_accounts(lists, names.collect()).await?;
        }
    }

    /// Returns whether this survey can be used for a page. The survey must cover the page's account and day, and must not be
    /// older than the page's reader.
    pub(super) fn serves(&self, ask: &LogPageQuery) -> bool {
        self.account == ask.filter.account && self.covers.contains(&ask.day) && self.taken >= ask.began
    }

    async fn add_accounts(&mut self, lists: &dyn LogLists, names: Vec<String>) -> Result<(), StoreError> {
        let covers = &self.covers;
        let asked = names.into_iter().map(|name| async move {
            let found = lists.log_days(&name, covers.clone()).await?;
            Ok::<_, StoreError>((name, found))
        });
        let asked: Vec<_> = asked.collect();
        let mut answers = stream::iter(asked).buffered(AT_ONCE);
        while let Some((name, found)) = answers.try_next().await? {
            let place = u32::try_from(self.accounts.len()).unwrap_or(u32::MAX);
            for of_day in &found {
                self.days.entry(of_day.day).or_default().push(place);
            }
            if !found.is_empty() {
                self.accounts.push(name);
            }
        }
        Ok(())
    }

    /// Returns the accounts with rows on a day, sorted by name, starting at the name `from`.
    pub(super) fn accounts<'s>(&'s self, day: i64, from: &'s str) -> impl Iterator<Item = &'s str> {
        let on_day = self.days.get(&day).map_or(&[][..], Vec::as_slice);
        let names = on_day
            .iter()
            .filter_map(|place| self.accounts.get(usize::try_from(*place).ok()?));
        names.map(String::as_str).filter(move |name| *name >= from)
    }
}
