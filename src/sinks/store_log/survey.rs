//! The accounts with rows by day, according to the store.

use std::{collections::BTreeMap, ops::RangeInclusive, time::Instant};

use futures_util::stream::{self, StreamExt, TryStreamExt};

use crate::{
    edges::clock,
    sinks::asks::LogPageQuery,
    store::{
        StoreError,
        ledger::{LIST_ACCOUNTS_MAX, LedgerStore, LogLists},
    },
};

/// The maximum number of days of a survey: it takes four bytes of memory for an account and day.
const DAYS_MAX: i64 = 31;
/// The maximum number of concurrent calls of the store.
const AT_ONCE: usize = 32;

/// The accounts with rows on some days.
pub(super) struct AccountSurvey {
    /// The account; `None` for all accounts.
    account: Option<String>,
    covers: RangeInclusive<i64>,
    /// When it was begun.
    taken: Instant,
    accounts: Vec<String>,
    /// By day, the indexes in `accounts`, ascending.
    days: BTreeMap<i64, Vec<u32>>,
}

impl AccountSurvey {
    /// Surveys the day of a page and some later days.
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

    /// Whether it can be used for a page.
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

    /// The accounts with rows on a day, in their order, from a name onwards.
    pub(super) fn accounts<'s>(&'s self, day: i64, from: &'s str) -> impl Iterator<Item = &'s str> {
        let on_day = self.days.get(&day).map_or(&[][..], Vec::as_slice);
        let names = on_day
            .iter()
            .filter_map(|place| self.accounts.get(usize::try_from(*place).ok()?));
        names.map(String::as_str).filter(move |name| *name >= from)
    }
}
