//! The newest rows first: from the end of each account's day in the store backwards, so that what a page costs depends on what it
//! shows, not on how many rows there are.
//!
//! Rows of an account come in the order in which they were settled, the last one first: nearly that in which they ended. Of several
//! accounts the row that ended last is next. So each row comes once, and none needs to be looked for.

use std::{collections::BTreeMap, ops::RangeInclusive, time::Instant};

use futures_util::stream::{self, StreamExt, TryStreamExt};

use crate::{
    domain::ledger::{LogDay, consumption::Row, log_filter::LogFilter},
    sinks::asks::{HomeError, ListsCursor, Newest, NewestAsk, NewestCursor, is_over},
    store::{
        StoreError,
        ledger::{LIST_ACCOUNTS_MAX, LOG_ROWS_MAX, LedgerStore, LogLists},
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

/// What is left of an account's day, from its end on.
struct Rest<'a> {
    account: &'a str,
    /// Rows that have not been looked at, those that are in `rows` among them.
    left: usize,
    rows: Vec<Row>,
    /// How many rows are read together: more each time.
    step: usize,
}

/// The newest rows behind a place in the lists; `None`: all.
pub(super) async fn newest(
    stores: (&dyn LedgerStore, &dyn LogLists),
    ask: &NewestAsk,
    from: Option<&ListsCursor>,
) -> Result<Newest, HomeError> {
    let filter = &ask.filter;
    let (first, last) = (filter.first_day(), filter.last_day());
    let (mut found, limits) = (Newest::default(), (ask.limit, ask.until));
    let mut at = from.cloned().unwrap_or_else(|| end_of(last));
    while (first..=last).contains(&at.day) {
        let days = first.max(at.day - DAYS_MAX + 1)..=at.day;
        let known = days_of(stores, filter.account.as_deref(), days.clone()).await?;
        for (day, accounts) in known.iter().rev() {
            if *day < at.day {
                at = end_of(*day);
            }
            let next = match look_through(stores.1, filter, accounts, &mut at, limits, &mut found).await? {
                Ended::Begin if is_over(Some(ask.until)) => {
                    (*day > first).then(|| NewestCursor::InLists(end_of(day - 1)))
                }
                Ended::Begin => continue,
                Ended::Earlier => Some(NewestCursor::InLists(at)),
            };
            return Ok(Newest { next, ..found });
        }
        at = end_of(days.start() - 1);
    }
    Ok(found)
}

/// Behind all rows of a day.
fn end_of(day: i64) -> ListsCursor {
    let left = BTreeMap::new();
    ListsCursor { day, left }
}

/// How a look through a day from its end on has ended.
enum Ended {
    /// At its begin.
    Begin,
    /// Before that.
    Earlier,
}

/// The accounts with rows, by day.
async fn days_of(
    (ledger, lists): (&dyn LedgerStore, &dyn LogLists),
    account: Option<&str>,
    days: RangeInclusive<i64>,
) -> Result<BTreeMap<i64, Vec<(String, LogDay)>>, HomeError> {
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
            let found = lists.log_days(&name, days.clone()).await?;
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
            return Err(HomeError::TooManyAccounts(ACCOUNTS_MAX));
        }
        if is_last {
            return Ok(known);
        }
    }
}

/// Looks through what is left of a day.
async fn look_through(
    lists: &dyn LogLists,
    filter: &LogFilter,
    accounts: &[(String, LogDay)],
    at: &mut ListsCursor,
    (limit, until): (usize, Instant),
    found: &mut Newest,
) -> Result<Ended, StoreError> {
    let day = at.day;
    let rests = accounts.iter().map(|(account, of_day)| {
        let there = usize::try_from(of_day.rows).unwrap_or(usize::MAX);
        let mut rest = Rest {
            account,
            left: at.left.get(account).map_or(there, |left| there.min(*left)),
            rows: Vec::new(),
            step: limit.clamp(1, LOG_ROWS_MAX),
        };
        async move {
            rest.fill(lists, day).await?;
            Ok::<_, StoreError>(rest)
        }
    });
    let rests = stream::iter(rests.collect::<Vec<_>>()).buffered(AT_ONCE);
    let mut rests: Vec<Rest<'_>> = rests.try_collect().await?;
    loop {
        let unread = rests.iter_mut().filter(|rest| rest.left > 0);
        let Some(newest) = unread.max_by(|one, other| one.ended().cmp(&other.ended())) else {
            return Ok(Ended::Begin);
        };
        if let Some(row) = newest.rows.pop() {
            newest.left -= 1;
            found.looked_at += 1;
            at.left.insert(newest.account.to_owned(), newest.left);
            found.rows.extend(filter.takes(&row).then_some(row));
        }
        newest.fill(lists, day).await?;
        let is_time = found.looked_at.is_multiple_of(STEP) && is_over(Some(until));
        if found.rows.len() >= limit || is_time {
            return Ok(Ended::Earlier);
        }
    }
}

impl Rest<'_> {
    /// When its next row ended, and what tells it from others that ended then.
    fn ended(&self) -> Option<(i64, &str)> {
        self.rows.last().map(|row| (row.time_ms, self.account))
    }

    /// Reads the last rows that were not read, if none are left of those that were.
    async fn fill(&mut self, lists: &dyn LogLists, day: i64) -> Result<(), StoreError> {
        while self.rows.is_empty() && self.left > 0 {
            let count = self.left.min(self.step);
            let first = self.left - count;
            self.rows = lists.rows(self.account, day, first, count).await?;
            // A store that has lost its last rows has fewer.
            self.left = first + self.rows.len();
            self.step = self.step.saturating_mul(4).min(LOG_ROWS_MAX);
        }
        Ok(())
    }
}
