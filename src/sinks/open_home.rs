//! The homes of the log that are open, and what brings rows there.

use std::sync::Arc;

use crate::sinks::{
    figures::SinkFigures,
    home::{FedHome, LogHome},
    reading::LogReading,
    store_log::StoreLog,
    tails::Tails,
};

/// Where the log is at home.
#[derive(Clone)]
pub(crate) enum OpenHome {
    /// A place that the journal is fed to.
    Fed(FedLog),
    /// The store: rows come with their settlement.
    Store(Arc<StoreLog>),
}

/// A home that is fed, and how far that is.
#[derive(Clone)]
pub(crate) struct FedLog {
    /// Where the feeders hand rows over, and where they are read.
    pub(crate) home: Arc<dyn FedHome>,
    /// What its feeders have done.
    pub(crate) figures: Arc<SinkFigures>,
    /// The rows on their way there.
    pub(crate) tails: Tails,
}

/// The home before, which is read as long as rows are there.
#[derive(Clone)]
pub(crate) enum FormerHome {
    /// The lists of a Redis that is the home.
    Store(Arc<StoreLog>),
    /// Another place than the store.
    Elsewhere(Arc<dyn LogHome>),
}

impl FedLog {
    /// A home that nothing has been fed to yet.
    pub(crate) fn new(home: Arc<dyn FedHome>) -> Self {
        Self {
            home,
            figures: Arc::default(),
            tails: Tails::default(),
        }
    }

    /// The name of this home in `[log] home`.
    pub(crate) fn name(&self) -> &'static str {
        LogHome::name(&*self.home)
    }
}

impl OpenHome {
    /// The name in `[log] home`.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Fed(fed) => fed.name(),
            Self::Store(store) => store.name(),
        }
    }

    /// The log of this home and of the one before it.
    pub(crate) fn reading(&self, former: Option<&FormerHome>) -> LogReading {
        let former = former.map(|former| match former {
            FormerHome::Store(store) => Arc::clone(store) as Arc<dyn LogHome>,
            FormerHome::Elsewhere(home) => Arc::clone(home),
        });
        match self {
            Self::Fed(fed) => LogReading::new(Arc::clone(&fed.home) as _, former).fed_by(fed.tails.clone()),
            Self::Store(store) => LogReading::new(Arc::clone(store) as _, former),
        }
    }
}

impl FormerHome {
    /// The home, as it is read.
    pub(crate) fn as_home(&self) -> &dyn LogHome {
        match self {
            Self::Store(store) => &**store,
            Self::Elsewhere(home) => &**home,
        }
    }
}
