//! The node's data about providers: pools, endpoints, provider state and learned usage. The config snapshot combines a
//! configuration with its pools and endpoints, and a reload replaces it as a unit. A request uses the same snapshot to its end,
//! so it never mixes two configurations.

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

/// One version of everything that a reload replaces. The start and each reload create one.
#[derive(Debug)]
pub(crate) struct ConfigSnapshot {
    /// The checked configuration.
    pub config: Arc<Config>,
    /// Models, providers and their rules.
    pub catalogue: Arc<Catalogue>,
    /// The run-time state of the catalogue's providers: credentials, backends, circuits and retry budgets.
    pub pools: Arc<Pools>,
    /// The routes to the catalogue's models.
    pub routes: Routes,
}

impl ConfigSnapshot {
    /// Creates a snapshot of parts that have been checked. `pools` are the pools of the catalogue's providers.
    pub(crate) fn new(config: Arc<Config>, catalogue: Arc<Catalogue>, pools: Arc<Pools>) -> Self {
        Self {
            routes: Routes::prepare(&catalogue, &pools),
            config,
            catalogue,
            pools,
        }
    }
}

/// The current config snapshot. Readers never block.
#[derive(Debug)]
pub(crate) struct CurrentConfig(ArcSwap<ConfigSnapshot>);

impl CurrentConfig {
    /// Creates the holder with the first snapshot.
    pub(crate) fn new(live: ConfigSnapshot) -> Self {
        Self(ArcSwap::from_pointee(live))
    }

    /// Returns the current snapshot.
    pub(crate) fn get(&self) -> Arc<ConfigSnapshot> {
        self.0.load_full()
    }

    /// Replaces the current snapshot. Running requests keep the one that they began with.
    pub(crate) fn set(&self, live: ConfigSnapshot) {
        self.0.store(Arc::new(live));
    }
}
