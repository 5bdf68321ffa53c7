//! Reads the consumption log wherever its rows are: each once, in one order.

mod latest;
mod log_rows;
mod newest;
#[cfg(test)]
mod tests;

use std::sync::{
    Arc,
    atomic::{AtomicI64, Ordering},
};

use thiserror::Error;

use crate::{
    sinks::{asks::HomeError, home::LogHome, store_log::StoreLog},
    store::StoreError,
};

pub(crate) use log_rows::{LogCursor, LogRows};

/// Why rows could not be read. What was read before is whole.
#[derive(Debug, Error)]
pub(crate) enum LogReadError {
    #[error(
        "{0}; no rows are left out in silence, so there are none: ask again when it is back, or with --store-only for those of the store"
    )]
    Home(HomeError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    TooManyAccounts(HomeError),
}

impl From<HomeError> for LogReadError {
    fn from(error: HomeError) -> Self {
        match error {
            HomeError::Store(error) => Self::Store(error),
            error @ HomeError::Unavailable(_) => Self::Home(error),
            error @ HomeError::TooManyAccounts(_) => Self::TooManyAccounts(error),
        }
    }
}

/// The log of an installation.
pub(crate) struct LogReading {
    /// The store's rows.
    store: Arc<StoreLog>,
    /// Where rows are besides. One may be in several of them, and goes over to these from the store only.
    homes: Vec<Arc<dyn LogHome>>,
    verified_at: AtomicI64,
}

impl LogReading {
    /// The log of a store, and of homes besides.
    pub(crate) fn new(store: StoreLog, homes: Vec<Arc<dyn LogHome>>) -> Self {
        Self {
            store: Arc::new(store),
            homes,
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

    /// All of them, each in front of those that its rows may go over to.
    fn places(&self, store_only: bool) -> Vec<Arc<dyn LogHome>> {
        let homes = self.homes.iter().filter(|_| !store_only).cloned();
        std::iter::once(Arc::clone(&self.store) as Arc<dyn LogHome>).chain(homes).collect()
    }
}
