//! The rows that a filter takes, of the store and of the home, brought together.

use std::{collections::VecDeque, sync::Arc, time::Instant};

use smol_str::SmolStr;

use super::{
    LogReadError, LogReading,
    account_day::{AccountDay, is_over},
    survey::Survey,
};
use crate::{
    domain::ledger::{
        consumption::Row,
        log_filter::LogFilter,
        log_place::{self, LogPlace},
    },
    sinks::home::PAGE_ROWS_MAX,
};

/// A place in the log: what is before it has been read. It stays valid while rows come and go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LogCursor {
    /// Days since the Unix epoch, UTC.
    pub(crate) day: i64,
    /// The last row of the day that was read, or the place before all.
    pub(crate) place: LogPlace,
}

impl LogCursor {
    /// Before all rows that a filter takes.
    pub(crate) fn before(filter: &LogFilter) -> Self {
        Self {
            day: filter.first_day(),
            place: LogPlace::default(),
        }
    }
}

/// Reads rows in the order of days, and within a day in that of [`LogPlace`]. Up to [`PAGE_ROWS_MAX`] rows of the store and of the
/// home each are in memory, besides what finds them.
///
/// A row that is neither in the store nor in the home at the moment in which it would be its turn is not read. One that goes over
/// from the store to the home is in one of them: of each part of the log the store is looked at first.
pub(crate) struct LogRows {
    reading: Arc<LogReading>,
    filter: LogFilter,
    store_only: bool,
    at: LogCursor,
    survey: Survey,
    /// Accounts of the day that the store may have rows of, behind the one that is being read.
    accounts: VecDeque<String>,
    account: Option<AccountDay>,
    of_store: VecDeque<Row>,
    /// The store has no further rows of the day.
    store_ends: bool,
    of_home: VecDeque<Row>,
    /// The last row of the home that was read.
    home_at: LogPlace,
    home_ends: bool,
    has_begun: bool,
    /// When it is to stop looking.
    until: Option<Instant>,
    /// The time was over before the store's rows of the day had been looked through.
    is_late: bool,
}

impl LogReading {
    /// The rows that a filter takes, behind a place. `store_only`: without those that the home alone has.
    pub(crate) fn rows(self: &Arc<Self>, filter: LogFilter, from: LogCursor, store_only: bool) -> LogRows {
        LogRows {
            reading: Arc::clone(self),
            filter,
            store_only: store_only || self.homes.is_empty(),
            home_at: from.place.clone(),
            at: from,
            survey: Survey::default(),
            accounts: VecDeque::new(),
            account: None,
            of_store: VecDeque::new(),
            store_ends: true,
            of_home: VecDeque::new(),
            home_ends: true,
            has_begun: false,
            until: None,
            is_late: false,
        }
    }
}

impl LogRows {
    /// The same, which looks for rows until this time: however many there are that the filter does not take, each look ends soon
    /// after it, and the next one goes on further on.
    pub(crate) fn within(mut self, until: Instant) -> Self {
        self.until = Some(until);
        self
    }

    /// How many rows of the account at the cursor were looked at without coming to their end; the next look knows them.
    pub(crate) fn seen_ahead(&self) -> usize {
        self.account.as_ref().map_or(0, AccountDay::seen)
    }

    /// Where it goes on; `None`: all has been read.
    pub(crate) fn cursor(&self) -> Option<&LogCursor> {
        (self.at.day <= self.filter.last_day()).then_some(&self.at)
    }

    /// The next rows, at most `limit`. Fewer, also none, are no sign of the end: that is [`LogRows::cursor`].
    pub(crate) async fn next(&mut self, limit: usize) -> Result<Vec<Row>, LogReadError> {
        let mut found = Vec::new();
        if self.cursor().is_none() {
            return Ok(found);
        }
        if !self.has_begun {
            self.begin().await?;
        }
        while found.len() < limit {
            let most = (limit - found.len()).min(PAGE_ROWS_MAX);
            if self.of_store.is_empty() && !self.store_ends && !self.is_late {
                self.read_store(most).await?;
                // What has gone over to the home before this look was not there yet when the home was read.
                self.of_home.clear();
                self.home_at = self.at.place.clone();
                self.home_ends = self.store_only;
            }
            if self.of_home.is_empty() && !self.home_ends {
                self.read_home(most).await?;
            }
            let Some(row) = self.first() else {
                match self.unread().map(SmolStr::new) {
                    None => self.end_day(),
                    Some(account) => self.stop_before(account),
                }
                break;
            };
            // A row may be in both, and in a home twice.
            if log_place::order(&row) > self.at.place.order() {
                self.at.place.go_to(&row);
                found.push(row);
            }
        }
        Ok(found)
    }

    /// The account whose rows of the store are the next ones that have not been read; `None`: all of the day have.
    fn unread(&self) -> Option<&str> {
        let begun = self.account.as_ref().map(AccountDay::account);
        let next = begun.or_else(|| self.accounts.front().map(String::as_str));
        next.filter(|_| !self.store_ends)
    }

    /// The next row of both. Where the store has not been read to its end, none of the home that might come behind its next one.
    fn first(&mut self) -> Option<Row> {
        if self.of_store.is_empty() {
            let is_next = |row: &Row| self.unread().is_none_or(|account| *row.account < *account);
            return self
                .of_home
                .front()
                .is_some_and(is_next)
                .then(|| self.of_home.pop_front())?;
        }
        let store_is_next = match (self.of_store.front(), self.of_home.front()) {
            (Some(store), Some(home)) => log_place::order(store) <= log_place::order(home),
            (store, _) => store.is_some(),
        };
        if store_is_next {
            self.of_store.pop_front()
        } else {
            self.of_home.pop_front()
        }
    }

    async fn begin(&mut self) -> Result<(), LogReadError> {
        if let Some(account) = self.account.take() {
            self.reading.keep(account);
        }
        self.of_home.clear();
        self.is_late = false;
        let (day, last) = (self.at.day, self.filter.last_day());
        let account = self.filter.account.as_deref();
        self.survey.cover(&*self.reading.ledger, account, day, last).await?;
        self.accounts = self.survey.accounts(day, &self.at.place.account).into();
        self.store_ends = false;
        self.home_at = self.at.place.clone();
        self.home_ends = self.store_only;
        self.has_begun = true;
        Ok(())
    }

    fn end_day(&mut self) {
        let next = if self.store_only {
            self.survey.next_day(self.at.day)
        } else {
            self.at.day.saturating_add(1)
        };
        self.at = LogCursor {
            day: next,
            place: LogPlace::default(),
        };
        self.has_begun = false;
    }

    /// All before this account's rows has been read.
    fn stop_before(&mut self, account: SmolStr) {
        if account > self.at.place.account {
            self.at.place = LogPlace {
                account,
                ..LogPlace::default()
            };
        }
        self.has_begun = false;
    }

    /// Reads up to `most` rows of the store, some accounts together.
    async fn read_store(&mut self, most: usize) -> Result<(), LogReadError> {
        while self.of_store.len() < most {
            let mut account = match self.account.take() {
                Some(account) => account,
                None => match self.accounts.pop_front() {
                    Some(name) => self.account_day(&name),
                    None => {
                        self.store_ends = true;
                        break;
                    }
                },
            };
            let wanted = most - self.of_store.len();
            let rows = account.next(&*self.reading.ledger, wanted, self.until).await?;
            if rows.is_none() || account.has_more() {
                self.account = Some(account);
            }
            self.of_store.extend(rows.into_iter().flatten());
            if is_over(self.until) {
                self.store_ends = self.account.is_none() && self.accounts.is_empty();
                self.is_late = true;
                break;
            }
        }
        Ok(())
    }

    fn account_day(&self, name: &str) -> AccountDay {
        let kept = self.reading.take(&self.filter, name, self.at.day);
        let mut account = kept.unwrap_or_else(|| self.reading.account_day(&self.filter, name, self.at.day));
        account.go_to(&self.filter, &self.at.place);
        account
    }

    async fn read_home(&mut self, most: usize) -> Result<(), LogReadError> {
        let homes = self.reading.homes();
        let rows = homes.page(&self.filter, self.at.day, &self.home_at, most).await?;
        self.home_ends = rows.len() < most;
        if let Some(last) = rows.last() {
            self.home_at = LogPlace::of(last);
        }
        self.of_home.extend(rows);
        Ok(())
    }
}

impl Drop for LogRows {
    fn drop(&mut self) {
        if let Some(account) = self.account.take() {
            self.reading.keep(account);
        }
    }
}
