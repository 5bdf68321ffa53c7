//! The homes of the log, as the admin API works on them.

use std::sync::Arc;

use tokio::sync::Mutex;

use crate::{
    sinks::{FedHome, LogHome, SinkFigures, own_journal::OpenLanes, reading::LogReading, store_log::StoreLog},
    store::ledger::LedgerStore,
};

/// Where the log is besides the store.
#[derive(Clone, Default)]
pub(crate) struct LogHomes {
    /// Where rows go.
    pub(super) home: Option<OpenHome>,
    /// Where they went before, and are read as long as they are there.
    pub(super) former: Option<Arc<dyn LogHome>>,
    /// The journals whose rows are to be in the log.
    pub(super) lanes: Arc<OpenLanes>,
    /// Where the store is the home: it is filled by one task at a time.
    pub(super) filling_store: Arc<Mutex<()>>,
}

impl LogHomes {
    /// `home` is fed and filled; `former` is only read.
    pub(crate) fn new(home: Option<OpenHome>, former: Option<Arc<dyn LogHome>>, lanes: Arc<OpenLanes>) -> Self {
        Self {
            home,
            former,
            lanes,
            filling_store: Arc::default(),
        }
    }

    /// The log of a ledger and of these.
    pub(super) fn reading(&self, ledger: &Arc<dyn LedgerStore>) -> LogReading {
        let home = self.home.iter().map(|home| Arc::clone(&home.home) as Arc<dyn LogHome>);
        LogReading::new(StoreLog::new(Arc::clone(ledger)), home.chain(self.former.clone()).collect())
    }
}

/// The log's home, and what is known of how complete it is.
#[derive(Clone)]
pub(crate) struct OpenHome {
    pub(super) home: Arc<dyn FedHome>,
    pub(super) figures: Arc<SinkFigures>,
    /// Filled by one task at a time: two would bring the same rows.
    pub(super) filling: Arc<Mutex<()>>,
}

impl OpenHome {
    /// This home, fed as its figures say, filled by whoever holds the lock.
    pub(crate) fn new(home: Arc<dyn FedHome>, figures: Arc<SinkFigures>, filling: Arc<Mutex<()>>) -> Self {
        Self { home, figures, filling }
    }

    /// Its name.
    pub(super) fn name(&self) -> &'static str {
        LogHome::name(&*self.home)
    }
}
