//! Reads the most recent rows from the store's lists. Each list, of an account and day, is read from its end backwards. So the
//! cost of a page depends on the number of rows that it returns, and not on the number of rows in the store.
//!
//! The rows of one account are returned in the reverse order of their settlement, which is nearly that of their end. Among
//! several accounts, the row that ended last comes next. So each row is returned once, without searching for a position.

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

/// The maximum number of accounts with rows that a page can be read of. The end of the day's list is read for each of them.
const ACCOUNTS_MAX: usize = 1000;
/// The maximum number of concurrent calls of the store.
const AT_ONCE: usize = 32;
/// The maximum number of days for which one call of the store lists the numbers of rows.
const DAYS_MAX: i64 = 31;
/// The deadline is checked each time after this number of scanned rows.
const STEP: usize = 256;

/// The unread rows in the list of an account and day.
struct UnreadRows<'a> {
    account: &'a str,
    /// The number of rows that have not been scanned yet, including those in `rows`.
    left: usize,
    rows: Vec<Row>,
    /// The number of rows to be fetched next. It grows with each fetch.
    step: usize,
}

/// Returns the most recent rows that are older than the position `from`; `None` for all rows.
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

/// Returns the position after the last row of a day, where no row of the day has been read.
fn end_of_day(day: i64) -> ListsCursor {
    let left = BTreeMap::new();
    ListsCursor { day, left }
}

/// How a backward scan of a day's lists ended.
enum DayScanEnd {
    /// All rows of the day were scanned.
    AtBeginning,
    /// The scan stopped before the first row of the day, at the limit or the deadline.
    Interrupted,
}

/// Returns the accounts that have rows, with their numbers of rows, by day.
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

/// Scans the unread rows of a day from its end backwards, and adds those that match the filter to `found`.
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
    /// Returns the sort key of the next row: its end, and its account for rows that ended at the same time. `None` if no row is
    /// in memory.
    fn sort_key(&self) -> Option<(i64, &str)> {
        self.rows.last().map(|row| (row.time_ms, self.account))
    }

    /// Fetches the last unread rows of the list if none are in memory.
    async fn fill(&mut self, lists: &dyn LogLists, day: i64) -> Result<(), StoreError> {
        while self.rows.is_empty() && self.left > 0 {
            let count = self.left.min(self.step);
            let first = self.left - count;
            self.rows = lists.rows(self.account, day, first, count).await?;
            // If the store has lost its last rows, it returns fewer rows.
            self.left = first + self.rows.len();
            self.step = self.step.saturating_mul(4).min(LOG_ROWS_MAX);
        }
        Ok(())
    }
}
