//! What a reload replaces as a whole. A request takes one version when it begins and keeps it to its end, so it never
//! mixes two configurations.

use std::sync::Arc;

use arc_swap::ArcSwap;

use crate::{
    config::Config,
    domain::catalogue::Catalogue,
    providers::{endpoint::Routes, pools::Pools},
};

/// One version of everything that a reload replaces. Made at the start and by each reload.
#[derive(Debug)]
pub(crate) struct Live {
    /// The checked configuration.
    pub config: Arc<Config>,
    /// Models, providers and their rules.
    pub catalogue: Arc<Catalogue>,
    /// Run-time state of the catalogue's providers: credentials, places, breakers, retry budgets.
    pub pools: Arc<Pools>,
    /// The endpoints of the catalogue's models.
    pub routes: Routes,
}

impl Live {
    /// A version of which everything is read. `pools` are those of the catalogue.
    pub(crate) fn new(config: Arc<Config>, catalogue: Arc<Catalogue>, pools: Arc<Pools>) -> Self {
        Self {
            routes: Routes::prepare(&catalogue, &pools),
            config,
            catalogue,
            pools,
        }
    }
}

/// Holds the current version; readers never block.
#[derive(Debug)]
pub(crate) struct LiveCell(ArcSwap<Live>);

impl LiveCell {
    /// Starts with a first version.
    pub(crate) fn new(live: Live) -> Self {
        Self(ArcSwap::from_pointee(live))
    }

    /// The current version.
    pub(crate) fn get(&self) -> Arc<Live> {
        self.0.load_full()
    }

    /// Replaces the current version. Running requests keep theirs.
    pub(crate) fn set(&self, live: Live) {
        self.0.store(Arc::new(live));
    }
}
