//! The log backend in the store: a list of rows for each account and day, in the order of their settlement.

mod account_day;
mod lists;
#[cfg(test)]
pub(in crate::sinks) mod tests;

use std::{collections::BTreeMap, ops::RangeInclusive, sync::Arc};

use async_trait::async_trait;
use parking_lot::Mutex;

use crate::{
    domain::{
        keys::key::KeyId,
        ledger::{NodeId, log_query::LogPosition},
    },
    sinks::{
        LogBackend,
        asks::{
            LatestKeyRows, LogBackendError, LogPageQuery, NewestCursor, NewestRows, NewestRowsQuery, PAGE_ROWS_MAX,
            RowPage, has_passed,
        },
        slices,
        store_log::account_day::{AccountDay, AccountSurvey, PLACES_MAX},
    },
    store::{
        StoreError,
        ledger::{LOG_ROWS_MAX, LedgerStore, LogLists},
    },
};

/// The maximum number of [`AccountDay`]s that are retained, so that the next page of a busy day need not scan all rows again.
const DAYS_KEPT_MAX: usize = 2;
/// The maximum number of [`AccountSurvey`]s that are retained. A survey serves readers that began before it.
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
    /// Creates the log backend on the store's lists of rows and the ledger with its accounts.
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

    /// Returns the ledger, which has the accounts, and the lists of rows.
    fn stores(&self) -> (&dyn LedgerStore, &dyn LogLists) {
        (&*self.ledger, &*self.lists)
    }

    /// Returns the rows of an account after the position of a page. Uses a retained [`AccountDay`] if there is one for this
    /// query.
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

/// Adds an entry. Removes the oldest entry first if there are `most` entries.
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
                slices::newest(ask, |page| Box::pin(async move { self.page(&page).await })).await
            }
            Some(NewestCursor::InLists(at)) => lists::newest(self.stores(), ask, Some(at)).await,
            None => lists::newest(self.stores(), ask, None).await,
        }
    }

    async fn watermarks(&self) -> Result<Option<BTreeMap<NodeId, u64>>, LogBackendError> {
        Ok(None)
    }
}

/// The maximum number of calls of the store for one query.
const CALLS_MAX: usize = 64;

/// Returns the most recent rows of a key, as far as [`CALLS_MAX`] calls of the store find them. Reads each day of the account
/// from its end backwards, so that earlier rows need not be read.
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

#[cfg(test)]
mod latest_tests {
    use std::sync::Arc;

    use super::*;
    use crate::{
        domain::ledger::{AccountChange, Settlement, Step, consumption::Row},
        sinks::contract::samples::{BEGIN_MS, node, row},
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
