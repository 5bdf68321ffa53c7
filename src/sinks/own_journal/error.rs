//! Why rows of the journals were not compared or not brought.

use thiserror::Error;

use crate::{
    journal::JournalError,
    sinks::{asks::HomeError, sink::SinkError},
    store::StoreError,
};

/// Why a portion could not be compared, or not filled. What was brought stays.
#[derive(Debug, Error)]
pub(crate) enum OwnJournalError {
    #[error(transparent)]
    Home(#[from] HomeError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Sink(#[from] SinkError),
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The process that was to take this one's place has it.
    #[error("a lane of the journal was closed meanwhile: ask again")]
    Closed,
}
