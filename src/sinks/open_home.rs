//! The open log backends.

use std::sync::Arc;

use crate::sinks::{
    figures::SinkStats,
    home::{FedLogBackend, LogBackend},
    reading::LogReader,
    store_log::StoreLog,
    tails::LogTails,
};

/// The current log backend.
#[derive(Clone)]
pub(crate) enum OpenLogBackend {
    /// A sink that the journal feeds.
    Fed(FedLog),
    /// The store, which gets rows with their settlement.
    Store(Arc<StoreLog>),
}

/// A log backend that the journal feeds, with the state of its feeders.
#[derive(Clone)]
pub(crate) struct FedLog {
    /// The log backend.
    pub(crate) home: Arc<dyn FedLogBackend>,
    /// The statistics of its feeders.
    pub(crate) stats: Arc<SinkStats>,
    /// The rows that it has not acknowledged.
    pub(crate) tails: LogTails,
}

/// The former log backend, which is read as long as it has rows.
#[derive(Clone)]
pub(crate) enum FormerLogBackend {
    /// The lists of a Redis store.
    Store(Arc<StoreLog>),
    /// Not the store.
    Elsewhere(Arc<dyn LogBackend>),
}

impl FedLog {
    /// A log backend without feeders yet.
    pub(crate) fn new(home: Arc<dyn FedLogBackend>) -> Self {
        Self {
            home,
            stats: Arc::default(),
            tails: LogTails::default(),
        }
    }

    /// Its name in `[log] home`.
    pub(crate) fn name(&self) -> &'static str {
        LogBackend::name(&*self.home)
    }
}

impl OpenLogBackend {
    /// Its name in `[log] home`.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Fed(fed) => fed.name(),
            Self::Store(store) => store.name(),
        }
    }

    /// Reads this log backend and the former one.
    pub(crate) fn reading(&self, former: Option<&FormerLogBackend>) -> LogReader {
        let former = former.map(|former| match former {
            FormerLogBackend::Store(store) => Arc::clone(store) as Arc<dyn LogBackend>,
            FormerLogBackend::Elsewhere(home) => Arc::clone(home),
        });
        match self {
            Self::Fed(fed) => LogReader::new(Arc::clone(&fed.home) as _, former).with_tails(fed.tails.clone()),
            Self::Store(store) => LogReader::new(Arc::clone(store) as _, former),
        }
    }
}

impl FormerLogBackend {
    /// The log backend, for reading.
    pub(crate) fn as_backend(&self) -> &dyn LogBackend {
        match self {
            Self::Store(store) => &**store,
            Self::Elsewhere(home) => &**home,
        }
    }
}
