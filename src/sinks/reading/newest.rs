//! The newest rows first: from the end of each account's day in the store backwards, so that what a page costs depends on what it
//! shows, not on how many rows there are. From the first day on that rows have left for the log's home, by slices of time.
//!
//! Rows of an account come in the order in which they were settled, the last one first: nearly that in which they ended. Of several
//! accounts the row that ended last is next. So each row comes once, and none needs to be looked for.

use std::{collections::BTreeMap, ops::RangeInclusive, sync::Arc, time::Instant};

use futures_util::stream::{self, StreamExt, TryStreamExt};
use thiserror::Error;

use super::{LogReadError, LogReading, SliceCursor, account_day::is_over};
use crate::{
    domain::ledger::{LogDay, consumption::Row, log_filter::LogFilter},
    store::{
        StoreError,
        ledger::{LIST_ACCOUNTS_MAX, LOG_ROWS_MAX, LedgerStore},
    },
};

/// The most accounts of one look: the end of each one's day is read.
const ACCOUNTS_MAX: usize = 1000;
/// Questions to the store that are under way at once.
const AT_ONCE: usize = 32;
/// How many days of an account are asked about together.
const DAYS_MAX: i64 = 31;
const DAY_MS: i64 = 24 * 3_600_000;
/// Rows that are looked at between two looks at the clock.
const STEP: usize = 256;

/// Why there is no newest row.
#[derive(Debug, Error)]
pub(crate) enum NewestError {
    #[error(transparent)]
    Read(#[from] LogReadError),
    #[error("more than {ACCOUNTS_MAX} accounts have rows in this time: name an account, or read the oldest rows first")]
    TooManyAccounts,
}

impl From<StoreError> for NewestError {
    fn from(error: StoreError) -> Self {
        Self::Read(error.into())
    }
}

/// A place in the log: what is newer has been read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NewestCursor {
    /// On a day that the store has all rows of.
    InStore(StoreCursor),
    /// Where rows have left it.
    InHome(SliceCursor),
}

/// A place on a day.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StoreCursor {
    /// Days since the Unix epoch, UTC.
    pub(crate) day: i64,
    /// How many of the day's rows are left, of each account that some were read of.
    pub(crate) left: BTreeMap<String, usize>,
}

/// A page of them.
#[derive(Debug, Default)]
pub(crate) struct Newest {
    pub(crate) rows: Vec<Row>,
    /// Where to go on.
    pub(crate) next: Option<NewestCursor>,
    /// How many rows were looked at.
    pub(crate) looked_at: usize,
}

/// What is left of an account's day, from its end on.
struct Tail<'a> {
    account: &'a str,
    /// Rows that have not been looked at, those that are in `rows` among them.
    left: usize,
    rows: Vec<Row>,
    /// How many rows are read together: more each time.
    step: usize,
}

impl LogReading {
    /// Up to `limit` of the newest rows that the filter takes, behind a place. It stops looking at `until`, having looked at some.
    pub(crate) async fn newest(
        self: &Arc<Self>,
        filter: &LogFilter,
        from: Option<NewestCursor>,
        limit: usize,
        until: Instant,
    ) -> Result<Newest, NewestError> {
        let mut found = Newest::default();
        let next = match from.unwrap_or_else(|| NewestCursor::InStore(StoreCursor::at(filter.last_day()))) {
            NewestCursor::InStore(at) => self.newest_of_store(filter, at, (limit, until), &mut found).await?,
            at @ NewestCursor::InHome(_) => Some(at),
        };
        found.next = match next {
            Some(NewestCursor::InHome(at)) if found.rows.len() < limit => {
                let of_home = self
                    .newest_by_slices(filter, at, limit - found.rows.len(), until)
                    .await?;
                found.rows.extend(of_home.rows);
                found.looked_at += of_home.looked_at;
                of_home.next.map(NewestCursor::InHome)
            }
            next => next,
        };
        Ok(found)
    }

    /// The same of the store, as far as it has all rows.
    async fn newest_of_store(
        &self,
        filter: &LogFilter,
        mut at: StoreCursor,
        (limit, until): (usize, Instant),
        found: &mut Newest,
    ) -> Result<Option<NewestCursor>, NewestError> {
        let ledger = &*self.ledger;
        let (first, last) = (filter.first_day(), filter.last_day());
        while (first..=last).contains(&at.day) {
            let days = first.max(at.day - DAYS_MAX + 1)..=at.day;
            let known = days_of(ledger, filter.account.as_deref(), days.clone()).await?;
            for (day, accounts) in known.iter().rev() {
                if *day < at.day {
                    at = StoreCursor::at(*day);
                }
                match look_through(ledger, filter, accounts, &mut at, (limit, until), found).await? {
                    Ended::Begin if is_over(Some(until)) => {
                        let before = (*day > first).then(|| StoreCursor::at(day - 1));
                        return Ok(before.map(NewestCursor::InStore));
                    }
                    Ended::Begin => {}
                    Ended::Earlier => return Ok(Some(NewestCursor::InStore(at))),
                    Ended::AtHome => {
                        let end = day.saturating_add(1).saturating_mul(DAY_MS);
                        return Ok(Some(NewestCursor::InHome(SliceCursor::at(end))));
                    }
                }
            }
            at = StoreCursor::at(days.start() - 1);
        }
        Ok(None)
    }
}

impl StoreCursor {
    /// Behind all rows of a day.
    fn at(day: i64) -> Self {
        let left = BTreeMap::new();
        Self { day, left }
    }
}

/// How a look through a day from its end on has ended.
enum Ended {
    /// At its begin.
    Begin,
    /// Before that.
    Earlier,
    /// Some of its rows have left the store.
    AtHome,
}

/// The accounts with rows, by day.
async fn days_of(
    ledger: &dyn LedgerStore,
    account: Option<&str>,
    days: RangeInclusive<i64>,
) -> Result<BTreeMap<i64, Vec<(String, LogDay)>>, NewestError> {
    let mut known: BTreeMap<i64, Vec<(String, LogDay)>> = BTreeMap::new();
    let (mut after, mut with_rows) = (None, 0);
    loop {
        let names: Vec<String> = match account {
            Some(account) => vec![account.to_owned()],
            None => {
                let page = ledger.accounts(after.as_deref(), LIST_ACCOUNTS_MAX).await?;
                page.into_iter().map(|account| account.id).collect()
            }
        };
        let is_last = account.is_some() || names.len() < LIST_ACCOUNTS_MAX;
        after = names.last().cloned();
        let asked = names.into_iter().map(|name| async {
            let found = ledger.log_days(&name, days.clone()).await?;
            Ok::<_, StoreError>((name, found))
        });
        let mut answers = stream::iter(asked.collect::<Vec<_>>()).buffered(AT_ONCE);
        while let Some((name, found)) = answers.try_next().await? {
            with_rows += usize::from(!found.is_empty());
            for day in found {
                known.entry(day.day).or_default().push((name.clone(), day));
            }
        }
        if with_rows > ACCOUNTS_MAX {
            return Err(NewestError::TooManyAccounts);
        }
        if is_last {
            return Ok(known);
        }
    }
}

/// Looks through what is left of a day.
async fn look_through(
    ledger: &dyn LedgerStore,
    filter: &LogFilter,
    accounts: &[(String, LogDay)],
    at: &mut StoreCursor,
    (limit, until): (usize, Instant),
    found: &mut Newest,
) -> Result<Ended, StoreError> {
    if accounts.iter().any(|(_, day)| day.trimmed > 0) {
        return Ok(Ended::AtHome);
    }
    let day = at.day;
    let tails = accounts.iter().map(|(account, of_day)| {
        let there = usize::try_from(of_day.rows).unwrap_or(usize::MAX);
        let mut tail = Tail {
            account,
            left: at.left.get(account).map_or(there, |left| there.min(*left)),
            rows: Vec::new(),
            step: limit.clamp(1, LOG_ROWS_MAX),
        };
        async move { Ok::<_, StoreError>(tail.fill(ledger, day).await?.then_some(tail)) }
    });
    let tails = stream::iter(tails.collect::<Vec<_>>()).buffered(AT_ONCE);
    let tails: Option<Vec<Tail<'_>>> = tails.try_collect::<Vec<_>>().await?.into_iter().collect();
    let Some(mut tails) = tails else {
        return Ok(Ended::AtHome);
    };
    loop {
        let unread = tails.iter_mut().filter(|tail| tail.left > 0);
        let Some(newest) = unread.max_by(|one, other| one.ended().cmp(&other.ended())) else {
            return Ok(Ended::Begin);
        };
        if let Some(row) = newest.rows.pop() {
            newest.left -= 1;
            found.looked_at += 1;
            at.left.insert(newest.account.to_owned(), newest.left);
            found.rows.extend(filter.takes(&row).then_some(row));
        }
        if newest.rows.is_empty() && !newest.fill(ledger, day).await? {
            return Ok(Ended::AtHome);
        }
        let is_time = found.looked_at.is_multiple_of(STEP) && is_over(Some(until));
        if found.rows.len() >= limit || is_time {
            return Ok(Ended::Earlier);
        }
    }
}

impl Tail<'_> {
    /// When its next row ended, and what tells it from others that ended then.
    fn ended(&self) -> Option<(i64, &str)> {
        self.rows.last().map(|row| (row.time_ms, self.account))
    }

    /// Reads its last rows that were not read. False: some have left the store.
    async fn fill(&mut self, ledger: &dyn LedgerStore, day: i64) -> Result<bool, StoreError> {
        if self.left == 0 {
            return Ok(true);
        }
        let count = self.left.min(self.step);
        self.rows = ledger.rows(self.account, day, self.left - count, count).await?;
        self.step = self.step.saturating_mul(4).min(LOG_ROWS_MAX);
        Ok(self.rows.len() == count)
    }
}

#[cfg(test)]
mod tests;
