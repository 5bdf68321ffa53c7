//! Reads the consumption log from all places that have its rows: each row once, in one order.

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
    sinks::{asks::LogBackendError, home::LogBackend, tail::TailBehind, tails::LogTails},
    store::StoreError,
};

pub(crate) use log_rows::{LogCursor, LogRows};

/// Why rows could not be read. Rows read before are complete.
#[derive(Debug, Error)]
pub(crate) enum LogReadError {
    #[error("{0}; weir does not return incomplete results: try again when it is back")]
    Home(LogBackendError),
    #[error("{0}; weir does not return incomplete results: try again, or look at weir_log_sink_behind_seconds")]
    Behind(#[from] TailBehind),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    TooManyAccounts(LogBackendError),
}

impl From<LogBackendError> for LogReadError {
    fn from(error: LogBackendError) -> Self {
        match error {
            LogBackendError::Store(error) => Self::Store(error),
            error @ LogBackendError::Unavailable(_) => Self::Home(error),
            error @ LogBackendError::TooManyAccounts(_) => Self::TooManyAccounts(error),
        }
    }
}

/// The log of an installation.
pub(crate) struct LogReader {
    home: Arc<dyn LogBackend>,
    /// The former log backend. A row is copied to the current one before it is removed here.
    former: Option<Arc<dyn LogBackend>>,
    /// The rows on their way to the log backend; `None` if it has them as soon as they are settled.
    tails: Option<LogTails>,
    verified_at: AtomicI64,
}

impl LogReader {
    /// Reads a log backend that has rows as soon as they are settled.
    pub(crate) fn new(home: Arc<dyn LogBackend>, former: Option<Arc<dyn LogBackend>>) -> Self {
        Self {
            home,
            former,
            tails: None,
            verified_at: AtomicI64::new(0),
        }
    }

    /// The same for a log backend that is fed: adds the rows on their way there.
    pub(crate) fn with_tails(self, tails: LogTails) -> Self {
        Self {
            tails: Some(tails),
            ..self
        }
    }

    /// Records that yesterday's rows of all accounts matched the daily sums, at this time in seconds since the Unix epoch.
    pub(crate) fn record_verified(&self, at: i64) {
        self.verified_at.fetch_max(at, Ordering::Relaxed);
    }

    /// When that was recorded last, since the start of the process; 0 if it was not.
    pub(crate) fn verified_at(&self) -> i64 {
        self.verified_at.load(Ordering::Relaxed)
    }

    /// The rows on their way to the log backend that match a filter. Must be read before the log backend.
    async fn pending_rows(&self, filter: &LogFilter) -> Result<Vec<Arc<NumberedRow>>, LogReadError> {
        match &self.tails {
            Some(tails) => Ok(tails.snapshot(filter).await?),
            None => Ok(Vec::new()),
        }
    }

    /// The log backends, the former one first, because its rows move to the current one.
    fn backends(&self) -> impl Iterator<Item = &Arc<dyn LogBackend>> {
        self.former.iter().chain(std::iter::once(&self.home))
    }
}
