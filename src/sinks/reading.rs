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
    domain::ledger::log_filter::LogFilter,
    journal::NumberedRow,
    sinks::{asks::HomeError, home::LogHome, tail::TailBehind, tails::Tails},
    store::StoreError,
};

pub(crate) use log_rows::{LogCursor, LogRows};

/// Why rows could not be read. What was read before is whole.
#[derive(Debug, Error)]
pub(crate) enum LogReadError {
    #[error("{0}; no rows are left out in silence, so there are none: ask again when it is back")]
    Home(HomeError),
    #[error(
        "{0}; no rows are left out in silence, so there are none: ask again, or look at weir_log_sink_behind_seconds"
    )]
    Behind(#[from] TailBehind),
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
    home: Arc<dyn LogHome>,
    /// Where rows went before. What goes over from there to the home is in the home first.
    former: Option<Arc<dyn LogHome>>,
    /// The rows that the home is about to get; `None`: it has them as soon as they are settled.
    tails: Option<Tails>,
    verified_at: AtomicI64,
}

impl LogReading {
    /// The log of a home that has rows as soon as they are settled.
    pub(crate) fn new(home: Arc<dyn LogHome>, former: Option<Arc<dyn LogHome>>) -> Self {
        Self {
            home,
            former,
            tails: None,
            verified_at: AtomicI64::new(0),
        }
    }

    /// The same where rows get there by feeders, which have these on the way.
    pub(crate) fn fed_by(self, tails: Tails) -> Self {
        Self {
            tails: Some(tails),
            ..self
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

    /// The rows on their way to the home that a filter takes. To be asked for before the home is.
    async fn on_their_way(&self, filter: &LogFilter) -> Result<Vec<Arc<NumberedRow>>, LogReadError> {
        match &self.tails {
            Some(tails) => Ok(tails.snapshot(filter).await?),
            None => Ok(Vec::new()),
        }
    }

    /// The homes, the one before the one that its rows go over to.
    fn homes(&self) -> impl Iterator<Item = &Arc<dyn LogHome>> {
        self.former.iter().chain(std::iter::once(&self.home))
    }
}
