//! Errors of comparing and restoring rows of the journals.

use thiserror::Error;

use crate::{
    journal::JournalError,
    sinks::{asks::LogBackendError, sink::SinkError},
    store::StoreError,
};

/// Why a portion could not be compared, or its missing rows not restored. Restored rows stay.
#[derive(Debug, Error)]
pub(crate) enum OwnJournalError {
    #[error(transparent)]
    Home(#[from] LogBackendError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Sink(#[from] SinkError),
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The lane was closed: the process that succeeds this one has it.
    #[error("a lane of the journal was closed meanwhile: try again")]
    Closed,
}
