//! The log backend in the store: a list of rows for each account and day, in the order of their settlement.

mod account_day;
#[cfg(test)]
pub(in crate::sinks) mod tests;

use std::{collections::BTreeMap, ops::RangeInclusive, sync::Arc, time::Instant};

use async_trait::async_trait;
use futures_util::stream::{self, StreamExt, TryStreamExt};
use parking_lot::Mutex;

use crate::{
    domain::{
        keys::KeyId,
        ledger::{
            LogDay, NodeId,
            consumption::Row,
            log_query::{LogFilter, LogPosition},
        },
    },
    sinks::{
        LatestKeyRows, ListsCursor, LogBackend, LogBackendError, LogPageQuery, NewestCursor, NewestRows,
        NewestRowsQuery, PAGE_ROWS_MAX, RowPage, has_passed, reading,
        store_log::account_day::{AccountDay, AccountSurvey, PLACES_MAX},
    },
    store::{
        StoreError,
        ledger::{LIST_ACCOUNTS_MAX, LOG_ROWS_MAX, LedgerStore, LogLists},
    },
};

/// The maximum number of [`AccountDay`]s that are retained. They are retained so that the next page of a busy day need not scan
/// all rows again.
const DAYS_KEPT_MAX: usize = 2;
/// The maximum number of [`AccountSurvey`]s that are retained. A survey can be used by readers that began before it.
const SURVEYS_KEPT_MAX: usize = 4;

/// The consumption log in the lists of a store.
pub(crate) struct StoreLog {
    lists: Arc<dyn LogLists>,
    ledger: Arc<dyn LedgerStore>,
    days: Mutex<Vec<AccountDay>>,
    surveys: Mutex<Vec<Arc<AccountSurvey>>>,
    /// The maximum number of positions of rows that are in memory for an account and day.
    places_max: usize,
}

impl StoreLog {
    /// Creates the log backend. `lists` contains the store's lists of rows, and `ledger` contains the accounts.
    pub(crate) fn new(lists: Arc<dyn LogLists>, ledger: Arc<dyn LedgerStore>) -> Self {
        Self {
            lists,
            ledger,
            days: Mutex::default(),
            surveys: Mutex::default(),
            places_max: PLACES_MAX,
        }
    }

    pub(crate) fn lists(&self) -> &dyn LogLists {
        &*self.lists
    }

    async fn survey(&self, ask: &LogPageQuery) -> Result<Arc<AccountSurvey>, LogBackendError> {
        let known = self.surveys.lock().iter().find(|survey| survey.serves(ask)).cloned();
        if let Some(known) = known {
            return Ok(known);
        }
        let survey = Arc::new(AccountSurvey::read(self.stores(), ask).await?);
        push_bounded(&self.surveys, Arc::clone(&survey), SURVEYS_KEPT_MAX);
        Ok(survey)
    }

    /// Returns the ledger and the lists of rows. The ledger has the accounts.
    fn stores(&self) -> (&dyn LedgerStore, &dyn LogLists) {
        (&*self.ledger, &*self.lists)
    }

    /// Returns the rows of an account on the day of the query `ask`, beginning after the query's position `ask.after`. Uses a
    /// retained [`AccountDay`] if there is one for this query.
    fn account_day(&self, ask: &LogPageQuery, account: &str) -> AccountDay {
        let kept = {
            let mut days = self.days.lock();
            let index = days.iter().position(|kept| kept.is_for(&ask.filter, account, ask.day));
            index.map(|index| days.remove(index))
        };
        let mut rows = kept.unwrap_or_else(|| AccountDay::new(&ask.filter, account, ask.day, self.places_max));
        rows.move_to(&ask.filter, &ask.after);
        rows
    }
}

/// Adds an entry. If there are already `most` entries, removes the oldest one before that.
fn push_bounded<T>(kept: &Mutex<Vec<T>>, one: T, most: usize) {
    let mut kept = kept.lock();
    if kept.len() >= most {
        kept.remove(0);
    }
    kept.push(one);
}

#[async_trait]
impl LogBackend for StoreLog {
    fn name(&self) -> &'static str {
        "store"
    }

    async fn page(&self, ask: &LogPageQuery) -> Result<RowPage, LogBackendError> {
        let limit = ask.limit.clamp(1, PAGE_ROWS_MAX);
        let survey = self.survey(ask).await?;
        let mut page = RowPage::default();
        let mut has_looked = false;
        for account in survey.accounts(ask.day, &ask.after.account) {
            let before = LogPosition::before_account(account);
            if has_looked && has_passed(ask.until) {
                page.next = Some(before);
                return Ok(page);
            }
            has_looked = true;
            let mut rows = self.account_day(ask, account);
            loop {
                let wanted = limit - page.rows.len();
                let next = rows.next(&*self.lists, wanted, ask.until).await?;
                let is_late = next.is_none();
                page.rows.extend(next.into_iter().flatten());
                let is_full = page.rows.len() >= limit;
                if is_full || is_late {
                    let last = page.rows.last().map_or_else(|| ask.after.clone(), LogPosition::of);
                    page.next = Some(last.max(before));
                    if is_late || rows.has_more() {
                        page.looked_at = rows.scanned();
                        push_bounded(&self.days, rows, DAYS_KEPT_MAX);
                    }
                    return Ok(page);
                }
                if !rows.has_more() {
                    break;
                }
            }
        }
        Ok(page)
    }

    async fn latest(
        &self,
        account: &str,
        key: &KeyId,
        days: RangeInclusive<i64>,
        limit: usize,
    ) -> Result<LatestKeyRows, LogBackendError> {
        Ok(last_of_key(&*self.lists, (account, key), days, limit.min(PAGE_ROWS_MAX)).await?)
    }

    async fn newest(&self, ask: &NewestRowsQuery) -> Result<NewestRows, LogBackendError> {
        match &ask.from {
            Some(NewestCursor::InSlices(_)) => {
                reading::newest(ask, |page| Box::pin(async move { self.page(&page).await })).await
            }
            Some(NewestCursor::InLists(at)) => newest(self.stores(), ask, Some(at)).await,
            None => newest(self.stores(), ask, None).await,
        }
    }

    async fn watermarks(&self) -> Result<Option<BTreeMap<NodeId, u64>>, LogBackendError> {
        Ok(None)
    }
}

/// The maximum number of calls of the store for one query.
const CALLS_MAX: usize = 64;

/// Returns the most recent rows of a key. Calls the store at most [`CALLS_MAX`] times to find them. Reads each day of the account
/// backwards from its end, and stops when enough rows are found.
async fn last_of_key(
    lists: &dyn LogLists,
    (account, key): (&str, &KeyId),
    days: RangeInclusive<i64>,
    limit: usize,
) -> Result<LatestKeyRows, StoreError> {
    let (mut rows, mut calls) = (Vec::new(), 0);
    for of_day in lists.log_days(account, days).await?.iter().rev() {
        let mut end = usize::try_from(of_day.rows).unwrap_or(usize::MAX);
        while end > 0 {
            if calls == CALLS_MAX {
                return Ok(LatestKeyRows {
                    rows,
                    is_complete: false,
                });
            }
            calls += 1;
            let first = end.saturating_sub(LOG_ROWS_MAX);
            let piece = lists.rows(account, of_day.day, first, end - first).await?;
            let of_key = piece.into_iter().rev().filter(|row| row.key_id == *key);
            rows.extend(of_key.take(limit - rows.len()));
            if rows.len() == limit {
                return Ok(LatestKeyRows {
                    rows,
                    is_complete: true,
                });
            }
            end = first;
        }
    }
    Ok(LatestKeyRows {
        rows,
        is_complete: true,
    })
}

/// The maximum number of accounts with rows. If there are more, no page is read, because the end of each account's list would
/// have to be read.
const ACCOUNTS_MAX: usize = 1000;
/// The maximum number of concurrent calls of the store.
const AT_ONCE: usize = 32;
/// The maximum number of days for which one call of the store lists the numbers of rows.
const DAYS_MAX: i64 = 31;
/// The number of scanned rows after which the deadline is checked again.
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
async fn newest(
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

/// Returns the position after the last row of a day. At this position, a backward scan of the day has not read any row yet.
fn end_of_day(day: i64) -> ListsCursor {
    let left = BTreeMap::new();
    ListsCursor { day, left }
}

/// The reason why a backward scan of a day's lists ended.
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
    /// Returns the sort key of the next row: the time at which the row's request ended, and the row's account. If several rows
    /// have the same time, the account determines their order. `None` if no row is in memory.
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

#[cfg(test)]
mod latest_tests {
    use std::sync::Arc;

    use super::*;
    use crate::{
        domain::ledger::{AccountChange, Settlement, Step, consumption::Row},
        sinks::contract::{BEGIN_MS, node, row},
        store::ledger::contract::{key_id, memory},
    };

    const DAY_MS: i64 = 24 * 3_600_000;

    /// Creates lists with one row per day of one account. The row of the first day is of one key, those of the following `days`
    /// days are of another key.
    async fn lists(days: i64) -> Arc<dyn LogLists> {
        let ledger = memory::ledger();
        let rows = (0..=days).map(|day| Row {
            account: "acme".into(),
            key_id: key_id(if day == 0 { 1 } else { 2 }),
            ..row(day.unsigned_abs(), BEGIN_MS + day * DAY_MS)
        });
        let steps = (1..).zip(rows).map(|(seq, row)| Step {
            seq,
            change: AccountChange::Settle(Box::new(Settlement::of(row, 0))),
        });
        ledger
            .apply(&node(7), "acme", &steps.collect::<Vec<_>>(), 0)
            .await
            .unwrap();
        ledger
    }

    #[tokio::test]
    async fn a_look_that_ends_early_says_that_it_has_not_seen_all() {
        for (days, rows, is_whole) in [(5, 1, true), (100, 0, false)] {
            let lists = lists(days).await;
            let today = BEGIN_MS.div_euclid(DAY_MS) + days;
            let (days_before, [key, other]) = (today - 100..=today, [key_id(1), key_id(2)]);
            let found = last_of_key(&*lists, ("acme", &key), days_before.clone(), 10);
            let found = found.await.unwrap();
            assert_eq!((found.rows.len(), found.is_complete), (rows, is_whole), "{days} days");
            let of_other = last_of_key(&*lists, ("acme", &other), days_before, 3);
            let of_other = of_other.await.unwrap();
            assert_eq!((of_other.rows.len(), of_other.is_complete), (3, true));
        }
    }
}
