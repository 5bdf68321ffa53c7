//! The log in the store: a list of rows for each account and day, in the order in which they were settled.

use std::{collections::BTreeMap, ops::RangeInclusive, sync::Arc};

use async_trait::async_trait;
use parking_lot::Mutex;

use self::{
    account_day::{AccountDay, PLACES_MAX},
    latest::last_of_key,
    survey::AccountSurvey,
};
use crate::{
    domain::{
        keys::key::KeyId,
        ledger::{NodeId, log_place::LogPosition},
    },
    sinks::{
        asks::{
            LatestKeyRows, LogBackendError, LogPageQuery, NewestCursor, NewestRows, NewestRowsQuery, PAGE_ROWS_MAX,
            RowPage, has_passed,
        },
        home::LogBackend,
        slices,
    },
    store::ledger::{LedgerStore, LogLists},
};

mod account_day;
mod latest;
mod lists;
mod survey;
#[cfg(test)]
pub(in crate::sinks) mod tests;

/// The maximum number of busy days of accounts that are remembered, so that the next page need not scan all their rows again.
const DAYS_KEPT_MAX: usize = 2;
/// The maximum number of surveys that are remembered, each for readings that began before it.
const SURVEYS_KEPT_MAX: usize = 4;

/// The rows of a store that has lists of them.
pub(crate) struct StoreLog {
    lists: Arc<dyn LogLists>,
    ledger: Arc<dyn LedgerStore>,
    days: Mutex<Vec<AccountDay>>,
    surveys: Mutex<Vec<Arc<AccountSurvey>>>,
    /// The maximum number of positions of rows in memory, for an account and day.
    places_max: usize,
}

impl StoreLog {
    /// Reads these lists, of the ledger's accounts.
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

    /// The ledger, which knows the accounts, and the lists.
    fn stores(&self) -> (&dyn LedgerStore, &dyn LogLists) {
        (&*self.ledger, &*self.lists)
    }

    /// The rows of an account after the position of a page; remembered ones, if possible.
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

/// Adds an entry; removes the oldest if there are `most`.
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
