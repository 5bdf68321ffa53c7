//! The homes of the log, as the admin API works on them.

use std::sync::Arc;

use tokio::sync::Mutex;

use crate::{
    sinks::{FormerHome, LogHome, OpenHome, own_journal::OpenLanes, proof::Prover, reading::LogReading},
    store::ledger::LedgerStore,
};

/// Where the log is.
#[derive(Clone)]
pub(crate) struct LogHomes {
    /// Where rows go.
    pub(super) home: OpenHome,
    /// Where they went before, and are read as long as they are there.
    pub(super) former: Option<FormerHome>,
    /// The journals whose rows are to be in the log.
    pub(super) lanes: Arc<OpenLanes>,
    /// The home is filled by one task at a time: two would bring the same rows.
    pub(super) filling: Arc<Mutex<()>>,
}

impl LogHomes {
    /// `home` gets the rows of these lanes; `former` is only read.
    pub(crate) fn new(home: OpenHome, former: Option<FormerHome>, lanes: Arc<OpenLanes>) -> Self {
        Self {
            home,
            former,
            lanes,
            filling: Arc::default(),
        }
    }

    /// The log, in both homes.
    pub(super) fn reading(&self) -> LogReading {
        self.home.reading(self.former.as_ref())
    }

    /// The home before, as it is read.
    pub(super) fn former(&self) -> Option<&dyn LogHome> {
        self.former.as_ref().map(FormerHome::as_home)
    }

    /// What holds its rows against the sums of a ledger.
    pub(super) fn prover<'p>(&'p self, ledger: &'p dyn LedgerStore) -> Prover<'p> {
        Prover {
            ledger,
            home: &self.home,
            former: self.former(),
            lanes: &self.lanes,
        }
    }
}
