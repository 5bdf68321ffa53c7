//! What this node knows about providers: pools, endpoints, provider state and learnt usage; and the config snapshot, which a
//! reload replaces as a whole. A request keeps the snapshot that it began with, so it never mixes two configurations.

pub(crate) mod endpoint;
pub(crate) mod learnt_usage;
pub(crate) mod pools;
pub(crate) mod sessions;

use std::sync::Arc;

use arc_swap::ArcSwap;

use crate::{
    config::Config,
    domain::catalogue::Catalogue,
    providers::{endpoint::Routes, pools::Pools},
};

/// One version of all that a reload replaces. Made at the start and by each reload.
#[derive(Debug)]
pub(crate) struct ConfigSnapshot {
    /// The checked configuration.
    pub config: Arc<Config>,
    /// Models, providers and their rules.
    pub catalogue: Arc<Catalogue>,
    /// The run-time state of the catalogue's providers: credentials, backends, circuits, retry budgets.
    pub pools: Arc<Pools>,
    /// The endpoints of the catalogue's models.
    pub routes: Routes,
}

impl ConfigSnapshot {
    /// A snapshot of checked parts. `pools` are those of the catalogue.
    pub(crate) fn new(config: Arc<Config>, catalogue: Arc<Catalogue>, pools: Arc<Pools>) -> Self {
        Self {
            routes: Routes::prepare(&catalogue, &pools),
            config,
            catalogue,
            pools,
        }
    }
}

/// The current snapshot; readers never block.
#[derive(Debug)]
pub(crate) struct CurrentConfig(ArcSwap<ConfigSnapshot>);

impl CurrentConfig {
    /// Starts with a first snapshot.
    pub(crate) fn new(live: ConfigSnapshot) -> Self {
        Self(ArcSwap::from_pointee(live))
    }

    /// The current snapshot.
    pub(crate) fn get(&self) -> Arc<ConfigSnapshot> {
        self.0.load_full()
    }

    /// Replaces the current snapshot. Running requests keep theirs.
    pub(crate) fn set(&self, live: ConfigSnapshot) {
        self.0.store(Arc::new(live));
    }
}
