//! The newest rows of the store first: from the end of each account's day backwards, so that what a page costs depends on what it
//! shows, not on how many rows there are.
//!
//! Rows of an account come in the order in which they were settled, the last one first: nearly that in which they ended. Of several
//! accounts the row that ended last is next. So each row comes once, and none needs to be looked for.

use std::{collections::BTreeMap, time::Instant};

use futures_util::stream::{self, StreamExt, TryStreamExt};
use thiserror::Error;

use super::{LogReading, account_day::is_over};
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
/// Rows that are looked at between two looks at the clock.
const STEP: usize = 256;

/// Why there is no newest row.
#[derive(Debug, Error)]
pub(crate) enum NewestError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("more than {ACCOUNTS_MAX} accounts have rows in this time: name an account, or read the oldest rows first")]
    TooManyAccounts,
}

/// A place in the log: what is newer has been read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NewestCursor {
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
    /// The day from which on the store has not got all rows any more: they are in the log's home.
    pub(crate) in_home: Option<i64>,
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
    /// Up to `limit` of the newest rows of the store that the filter takes, behind a place. It stops looking at `until`, having
    /// looked at some.
    pub(crate) async fn newest(
        &self,
        filter: &LogFilter,
        from: Option<NewestCursor>,
        limit: usize,
        until: Instant,
    ) -> Result<Newest, NewestError> {
        let ledger = &*self.ledger;
        let (first, last) = (filter.first_day(), filter.last_day());
        let mut found = Newest::default();
        let mut at = from.unwrap_or_else(|| NewestCursor::at(last));
        while (first..=last).contains(&at.day) {
            let days = first.max(at.day - DAYS_MAX + 1)..=at.day;
            let known = days_of(ledger, filter.account.as_deref(), days.clone()).await?;
            for (day, accounts) in known.iter().rev() {
                if *day < at.day {
                    at = NewestCursor::at(*day);
                }
                let ended = look_through(ledger, filter, accounts, &mut at, (limit, until), &mut found).await?;
                match ended {
                    Ended::Begin if is_over(Some(until)) => {
                        found.next = Some(NewestCursor::at(day - 1)).filter(|next| next.day >= first);
                        return Ok(found);
                    }
                    Ended::Begin => {}
                    Ended::Earlier => {
                        found.next = Some(at);
                        return Ok(found);
                    }
                    Ended::AtHome => {
                        found.in_home = Some(*day);
                        return Ok(found);
                    }
                }
            }
            at = NewestCursor::at(days.start() - 1);
        }
        Ok(found)
    }
}

impl NewestCursor {
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
    days: std::ops::RangeInclusive<i64>,
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
    at: &mut NewestCursor,
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
        let is_time = found.looked_at % STEP == 0 && is_over(Some(until));
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
