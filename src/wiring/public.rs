//! Builds the stability record and the public stability service from this process's parts.

use std::sync::Arc;

use crate::{
    config::Config,
    domain::catalogue::Catalogue,
    edges::{clock, limiter::RateAllowance},
    providers::live::CurrentConfig,
    stability::{
        Snapshot, Snapshots,
        public::{PublicService, PublicSettings, StabilitySource},
    },
};

/// Builds the public stability service from `[stability]`.
pub(crate) fn build(config: &Config, live: &Arc<CurrentConfig>, snapshots: &Arc<Snapshots>) -> Arc<PublicService> {
    let stability = &config.stability;
    let settings = PublicSettings {
        refresh: stability.refresh,
        allowance: RateAllowance {
            per_minute: stability.requests_per_minute,
            burst: stability.burst,
            clients_max: stability.addresses_max,
        },
        trusted_proxies: stability.trusted_proxies.clone(),
    };
    let reads = NodeStabilitySource {
        live: Arc::clone(live),
        snapshots: Arc::clone(snapshots),
    };
    Arc::new(PublicService::new(settings, Box::new(reads), clock::instant()))
}

struct NodeStabilitySource {
    live: Arc<CurrentConfig>,
    snapshots: Arc<Snapshots>,
}

impl StabilitySource for NodeStabilitySource {
    fn catalogue(&self) -> Arc<Catalogue> {
        Arc::clone(&self.live.get().catalogue)
    }

    fn snapshot(&self) -> Option<Arc<Snapshot>> {
        self.snapshots.get()
    }
}
