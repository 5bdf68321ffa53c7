//! The log backends, as the admin API uses them.

use std::sync::Arc;

use tokio::sync::Mutex;

use crate::{
    sinks::{FormerLogBackend, LogBackend, OpenLogBackend, own_journal::OpenLanes, proof::Prover, reading::LogReader},
    store::ledger::LedgerStore,
};

/// The log backends.
#[derive(Clone)]
pub(crate) struct AdminLogBackends {
    /// The backend that gets rows.
    pub(super) home: OpenLogBackend,
    /// The former backend, whose rows are still read.
    pub(super) former: Option<FormerLogBackend>,
    /// The journals whose rows go to the log.
    pub(super) lanes: Arc<OpenLanes>,
    /// Held while the backend is filled: two tasks would copy the same rows.
    pub(super) filling: Arc<Mutex<()>>,
}

impl AdminLogBackends {
    /// `home` gets the rows of `lanes`; `former` is only read.
    pub(crate) fn new(home: OpenLogBackend, former: Option<FormerLogBackend>, lanes: Arc<OpenLanes>) -> Self {
        Self {
            home,
            former,
            lanes,
            filling: Arc::default(),
        }
    }

    /// Reads the log from both backends.
    pub(super) fn reading(&self) -> LogReader {
        self.home.reading(self.former.as_ref())
    }

    /// The former backend, for reading.
    pub(super) fn former(&self) -> Option<&dyn LogBackend> {
        self.former.as_ref().map(FormerLogBackend::as_backend)
    }

    /// Compares the rows with the sums of a ledger.
    pub(super) fn prover<'p>(&'p self, ledger: &'p dyn LedgerStore) -> Prover<'p> {
        Prover {
            ledger,
            home: &self.home,
            former: self.former(),
            lanes: &self.lanes,
        }
    }
}
