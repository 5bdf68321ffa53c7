//! Reads the newest rows, from the end of each account's day backwards: the cost of a page depends on the rows that it shows, not
//! on the number of rows in the store.
//!
//! Rows of an account are returned in the reverse order of their settlement, which is nearly that of their end. Of several
//! accounts the row that ended last comes next. So each row is returned once, without a search.

use std::{collections::BTreeMap, ops::RangeInclusive, time::Instant};

use futures_util::stream::{self, StreamExt, TryStreamExt};

use crate::{
    domain::ledger::{LogDay, consumption::Row, log_query::LogFilter},
    sinks::asks::{ListsCursor, LogBackendError, NewestCursor, NewestRows, NewestRowsQuery, has_passed},
    store::{
        StoreError,
        ledger::{LIST_ACCOUNTS_MAX, LOG_ROWS_MAX, LedgerStore, LogLists},
    },
};

/// The maximum number of accounts of one page: the end of each one's day is read.
const ACCOUNTS_MAX: usize = 1000;
/// The maximum number of concurrent calls of the store.
const AT_ONCE: usize = 32;
/// The maximum number of days in one call.
const DAYS_MAX: i64 = 31;
/// The number of rows scanned before the time is checked.
const STEP: usize = 256;

/// The unread rows of an account's day.
struct UnreadRows<'a> {
    account: &'a str,
    /// The number of rows not scanned yet, including those in `rows`.
    left: usize,
    rows: Vec<Row>,
    /// The number of rows to read next; it grows.
    step: usize,
}

/// The newest rows after a position in the lists; `None` for all rows.
pub(super) async fn newest(
    stores: (&dyn LedgerStore, &dyn LogLists),
    ask: &NewestRowsQuery,
    from: Option<&ListsCursor>,
) -> Result<NewestRows, LogBackendError> {
    let filter = &ask.filter;
    let (first, last) = (filter.first_day(), filter.last_day());
    let (mut found, limits) = (NewestRows::default(), (ask.limit, ask.until));
    let mut at = from.cloned().unwrap_or_else(|| end_of_day(last));
    while (first..=last).contains(&at.day) {
        let days = first.max(at.day - DAYS_MAX + 1)..=at.day;
        let known = accounts_by_day(stores, filter.account.as_deref(), days.clone()).await?;
        for (day, accounts) in known.iter().rev() {
            if *day < at.day {
                at = end_of_day(*day);
            }
            let next = match scan_day(stores.1, filter, accounts, &mut at, limits, &mut found).await? {
                DayScanEnd::AtBeginning if has_passed(Some(ask.until)) => {
                    (*day > first).then(|| NewestCursor::InLists(end_of_day(day - 1)))
                }
                DayScanEnd::AtBeginning => continue,
                DayScanEnd::Interrupted => Some(NewestCursor::InLists(at)),
            };
            return Ok(NewestRows { next, ..found });
        }
        at = end_of_day(days.start() - 1);
    }
    Ok(found)
}

/// The position at the end of a day.
fn end_of_day(day: i64) -> ListsCursor {
    let left = BTreeMap::new();
    ListsCursor { day, left }
}

/// Where scanning a day backwards has ended.
enum DayScanEnd {
    /// At its beginning.
    AtBeginning,
    /// Before its beginning was reached.
    Interrupted,
}

/// The accounts with rows, by day.
async fn accounts_by_day(
    (ledger, lists): (&dyn LedgerStore, &dyn LogLists),
    account: Option<&str>,
    days: RangeInclusive<i64>,
) -> Result<BTreeMap<i64, Vec<(String, LogDay)>>, LogBackendError> {
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
            return Err(LogBackendError::TooManyAccounts(ACCOUNTS_MAX));
        }
        if is_last {
            return Ok(known);
        }
    }
}

/// Scans the unread rows of a day.
async fn scan_day(
    lists: &dyn LogLists,
    filter: &LogFilter,
    accounts: &[(String, LogDay)],
    at: &mut ListsCursor,
    (limit, until): (usize, Instant),
    found: &mut NewestRows,
) -> Result<DayScanEnd, StoreError> {
    let day = at.day;
    let rests = accounts.iter().map(|(account, of_day)| {
        let there = usize::try_from(of_day.rows).unwrap_or(usize::MAX);
        let mut rest = UnreadRows {
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
    let mut rests: Vec<UnreadRows<'_>> = rests.try_collect().await?;
    loop {
        let unread = rests.iter_mut().filter(|rest| rest.left > 0);
        let Some(newest) = unread.max_by(|one, other| one.sort_key().cmp(&other.sort_key())) else {
            return Ok(DayScanEnd::AtBeginning);
        };
        if let Some(row) = newest.rows.pop() {
            newest.left -= 1;
            found.looked_at += 1;
            at.left.insert(newest.account.to_owned(), newest.left);
            found.rows.extend(filter.matches(&row).then_some(row));
        }
        newest.fill(lists, day).await?;
        let is_time = found.looked_at.is_multiple_of(STEP) && has_passed(Some(until));
        if found.rows.len() >= limit || is_time {
            return Ok(DayScanEnd::Interrupted);
        }
    }
}

impl UnreadRows<'_> {
    /// When its next row ended, with the account to order rows that ended at the same time.
    fn sort_key(&self) -> Option<(i64, &str)> {
        self.rows.last().map(|row| (row.time_ms, self.account))
    }

    /// Reads the last unread rows, if none are in memory.
    async fn fill(&mut self, lists: &dyn LogLists, day: i64) -> Result<(), StoreError> {
        while self.rows.is_empty() && self.left > 0 {
            let count = self.left.min(self.step);
            let first = self.left - count;
            self.rows = lists.rows(self.account, day, first, count).await?;
            // A store that has lost its last rows returns fewer.
            self.left = first + self.rows.len();
            self.step = self.step.saturating_mul(4).min(LOG_ROWS_MAX);
        }
        Ok(())
    }
}
