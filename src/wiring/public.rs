//! Builds the public stability service from this process's parts.

use std::sync::Arc;

use crate::{
    config::Config,
    domain::catalogue::Catalogue,
    edges::{clock, limiter::Allowance},
    providers::live::LiveCell,
    stability::{
        Snapshot, Snapshots,
        public::{Public, Settings, Source},
    },
};

/// Built from `[stability]`.
pub(crate) fn build(config: &Config, live: &Arc<LiveCell>, snapshots: &Arc<Snapshots>) -> Arc<Public> {
    let stability = &config.stability;
    let settings = Settings {
        refresh: stability.refresh,
        allowance: Allowance {
            per_minute: stability.requests_per_minute,
            burst: stability.burst,
            clients_max: stability.addresses_max,
        },
        trusted_proxies: stability.trusted_proxies.clone(),
    };
    let reads = Reads {
        live: Arc::clone(live),
        snapshots: Arc::clone(snapshots),
    };
    Arc::new(Public::new(settings, Box::new(reads), clock::instant()))
}

struct Reads {
    live: Arc<LiveCell>,
    snapshots: Arc<Snapshots>,
}

impl Source for Reads {
    fn catalogue(&self) -> Arc<Catalogue> {
        Arc::clone(&self.live.get().catalogue)
    }

    fn snapshot(&self) -> Option<Arc<Snapshot>> {
        self.snapshots.get()
    }
}
