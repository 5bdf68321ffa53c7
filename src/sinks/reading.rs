//! Reads the consumption log wherever its rows are: in its home, in the store, or in both; each once, in one order.

mod account_day;
mod log_rows;
mod newest;
mod slices;
mod survey;
#[cfg(test)]
mod tests;

use std::sync::{
    Arc,
    atomic::{AtomicI64, Ordering},
};

use parking_lot::Mutex;
use thiserror::Error;

use crate::{
    domain::ledger::log_filter::LogFilter,
    sinks::{
        home::HomeError,
        homes::Homes,
        reading::account_day::{AccountDay, PLACES_MAX},
    },
    store::{StoreError, ledger::LedgerStore},
};

pub(crate) use log_rows::{LogCursor, LogRows};
pub(crate) use newest::{Newest, NewestCursor, NewestError, StoreCursor};
pub(crate) use slices::SliceCursor;

/// How many busy days of accounts are remembered, so that the next page need not look through all their rows again.
const KEPT_MAX: usize = 2;

/// Why rows could not be read. What was read before is whole.
#[derive(Debug, Error)]
pub(crate) enum LogReadError {
    #[error(
        "{0}; no rows are left out in silence, so there are none: ask again when it is back, or with --store-only for those of the store"
    )]
    Home(#[from] HomeError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The log of an installation.
pub(crate) struct LogReading {
    ledger: Arc<dyn LedgerStore>,
    homes: Homes,
    kept: Mutex<Vec<AccountDay>>,
    /// The most places of rows of an account and day in memory.
    places_max: usize,
    verified_at: AtomicI64,
}

impl LogReading {
    /// The log of a store, and of homes besides.
    pub(crate) fn new(ledger: Arc<dyn LedgerStore>, homes: Homes) -> Self {
        Self {
            ledger,
            homes,
            kept: Mutex::default(),
            places_max: PLACES_MAX,
            verified_at: AtomicI64::new(0),
        }
    }

    /// Yesterday's rows of all accounts were found to be what the daily sums say, at this time in seconds since the Unix epoch.
    pub(crate) fn note_verified(&self, at: i64) {
        self.verified_at.fetch_max(at, Ordering::Relaxed);
    }

    /// When that was last, since the start of the process; 0 for not yet.
    pub(crate) fn verified_at(&self) -> i64 {
        self.verified_at.load(Ordering::Relaxed)
    }

    /// Where rows are besides the store.
    pub(crate) fn homes(&self) -> &Homes {
        &self.homes
    }

    fn account_day(&self, filter: &LogFilter, account: &str, day: i64) -> AccountDay {
        AccountDay::new(filter, account, day, self.places_max)
    }

    fn take(&self, filter: &LogFilter, account: &str, day: i64) -> Option<AccountDay> {
        let mut kept = self.kept.lock();
        let index = kept.iter().position(|kept| kept.has(filter, account, day))?;
        Some(kept.remove(index))
    }

    fn keep(&self, rows: AccountDay) {
        let mut kept = self.kept.lock();
        if kept.len() == KEPT_MAX {
            kept.remove(0);
        }
        kept.push(rows);
    }
}
