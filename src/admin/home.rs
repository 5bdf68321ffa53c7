//! The homes of the log, as the admin API works on them.

use std::sync::Arc;

use tokio::sync::Mutex;

use crate::{
    sinks::{FedHome, LogHome, SinkFigures, Tails, own_journal::OpenLanes, reading::LogReading, store_log::StoreLog},
    store::ledger::LedgerStore,
};

/// Where the log is, if it is not the store alone.
#[derive(Clone, Default)]
pub(crate) struct LogHomes {
    /// Where rows go; `None`: the store is the home.
    pub(super) home: Option<OpenHome>,
    /// Where they went before, and are read as long as they are there.
    pub(super) former: Former,
    /// The journals whose rows are to be in the log.
    pub(super) lanes: Arc<OpenLanes>,
    /// Where the store is the home: it is filled by one task at a time.
    pub(super) filling_store: Arc<Mutex<()>>,
}

impl LogHomes {
    /// `home` is fed and filled; `former` is only read.
    pub(crate) fn new(home: Option<OpenHome>, former: Former, lanes: Arc<OpenLanes>) -> Self {
        Self {
            home,
            former,
            lanes,
            filling_store: Arc::default(),
        }
    }

    /// The log, whose rows are in a ledger where they have no other home.
    pub(super) fn reading(&self, ledger: &Arc<dyn LedgerStore>) -> LogReading {
        let store = || Arc::new(StoreLog::new(Arc::clone(ledger))) as Arc<dyn LogHome>;
        let former = match &self.former {
            Former::Nowhere => None,
            Former::Store => Some(store()),
            Former::Elsewhere(home) => Some(Arc::clone(home)),
        };
        match &self.home {
            Some(home) => LogReading::new(Arc::clone(&home.home) as _, former).fed_by(home.tails.clone()),
            None => LogReading::new(store(), former),
        }
    }
}

/// The home before.
#[derive(Clone, Default)]
pub(crate) enum Former {
    /// There was none.
    #[default]
    Nowhere,
    /// The store.
    Store,
    /// This one.
    Elsewhere(Arc<dyn LogHome>),
}

impl Former {
    /// The home, if it is not the store.
    pub(super) fn elsewhere(&self) -> Option<&dyn LogHome> {
        match self {
            Self::Nowhere | Self::Store => None,
            Self::Elsewhere(home) => Some(&**home),
        }
    }

    /// Its name.
    pub(super) fn name(&self) -> Option<&'static str> {
        match self {
            Self::Nowhere => None,
            Self::Store => Some("store"),
            Self::Elsewhere(home) => Some(home.name()),
        }
    }
}

/// The log's home, and what is known of how complete it is.
#[derive(Clone)]
pub(crate) struct OpenHome {
    pub(super) home: Arc<dyn FedHome>,
    pub(super) figures: Arc<SinkFigures>,
    /// The rows on their way there.
    tails: Tails,
    /// Filled by one task at a time: two would bring the same rows.
    pub(super) filling: Arc<Mutex<()>>,
}

impl OpenHome {
    /// This home, fed as its figures and tails say, filled by whoever holds the lock.
    pub(crate) fn new(
        home: Arc<dyn FedHome>,
        (figures, tails): (Arc<SinkFigures>, Tails),
        filling: Arc<Mutex<()>>,
    ) -> Self {
        Self {
            home,
            figures,
            tails,
            filling,
        }
    }

    /// Its name.
    pub(super) fn name(&self) -> &'static str {
        LogHome::name(&*self.home)
    }
}
