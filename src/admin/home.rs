//! The log's home beside the store, as the admin API works on it.

use std::sync::Arc;

use tokio::sync::Mutex;

use crate::sinks::{Home, Homes, SinkFigures, own_journal::OpenLanes};

/// Where the log is besides the store.
#[derive(Clone, Default)]
pub(crate) struct LogHomes {
    /// Where rows go.
    pub(super) home: Option<LogHome>,
    /// Where they went before, and are read as long as they are there.
    pub(super) former: Option<Arc<dyn Home>>,
    /// The journals whose rows are to be in the log.
    pub(super) lanes: Arc<OpenLanes>,
    /// Where the store is the home: it is filled by one task at a time.
    pub(super) filling_store: Arc<Mutex<()>>,
}

impl LogHomes {
    /// `home` is fed and filled; `former` is only read.
    pub(crate) fn new(home: Option<LogHome>, former: Option<Arc<dyn Home>>, lanes: Arc<OpenLanes>) -> Self {
        Self {
            home,
            former,
            lanes,
            filling_store: Arc::default(),
        }
    }

    /// All of them, to be read.
    pub(super) fn all(&self) -> Homes {
        let home = self.home.iter().map(|home| Arc::clone(&home.home));
        Homes::of(home.chain(self.former.clone()))
    }
}

/// The log's home, and what is known of how complete it is.
#[derive(Clone)]
pub(crate) struct LogHome {
    pub(super) home: Arc<dyn Home>,
    pub(super) figures: Arc<SinkFigures>,
    /// Filled by one task at a time: two would bring the same rows.
    pub(super) filling: Arc<Mutex<()>>,
}

impl LogHome {
    /// This home, fed as its figures say, filled by whoever holds the lock.
    pub(crate) fn new(home: Arc<dyn Home>, figures: Arc<SinkFigures>, filling: Arc<Mutex<()>>) -> Self {
        Self { home, figures, filling }
    }
}
