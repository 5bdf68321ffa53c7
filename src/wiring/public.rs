//! Builds the public record and the public stability service from the parts of this process.

use std::{sync::Arc, time::Duration};

use tokio::{runtime::Runtime, sync::watch, task::JoinHandle};

use crate::{
    config::Config,
    domain::catalogue::Catalogue,
    edges::{clock, limiter::RateAllowance},
    journal::Journal,
    providers::CurrentConfig,
    stability::{
        Publisher, Snapshot, Snapshots,
        public::{PublicService, PublicSettings, StabilitySource},
    },
    store::{ledger::StabilityStore, time::StoreTime},
    telemetry::metrics::Metrics,
};

/// Builds the public stability service with the settings of `[stability]`.
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

/// The public record: the publisher of this node's counts, and the snapshots of all nodes' counts.
pub(crate) struct StabilityParts {
    /// The snapshots of the published record.
    pub snapshots: Arc<Snapshots>,
    publisher: Arc<Publisher>,
    /// The task of publishing. It ends after the last publication, once `stop` has turned true.
    publishing: JoinHandle<()>,
}

impl StabilityParts {
    /// Starts to publish the counts in the journal, and to read the published record at the interval `refresh`.
    pub(crate) fn build(
        store: Arc<dyn StabilityStore>,
        journal: &Arc<Journal>,
        time: &Arc<StoreTime>,
        refresh: Duration,
        background: &Runtime,
        stopped: &watch::Receiver<bool>,
    ) -> Self {
        let snapshots = Arc::new(Snapshots::new(Arc::clone(&store), Arc::clone(time), refresh));
        background.spawn(Arc::clone(&snapshots).run(stopped.clone()));
        let node = journal.node().clone();
        let publisher = Arc::new(Publisher::new(Arc::clone(journal) as _, store, node));
        let publishing = background.spawn(Arc::clone(&publisher).run(stopped.clone()));
        Self {
            snapshots,
            publisher,
            publishing,
        }
    }

    /// Adds a sampler that copies the record's figures to the metrics.
    pub(crate) fn observe(&self, metrics: &Metrics) {
        let (publisher, snapshots) = (Arc::clone(&self.publisher), Arc::clone(&self.snapshots));
        metrics.add_sampler(move |metrics| {
            let read_at = snapshots
                .get()
                .map_or(0, |snapshot| snapshot.read_at_ms.div_euclid(1000));
            metrics.store.stability_untold_hours.set(publisher.unsent_hours());
            metrics.store.stability_read_at.set(read_at);
        });
    }

    /// Waits for the last publication. Must be called after the background tasks were stopped.
    pub(crate) async fn end(self) {
        let _ = self.publishing.await;
    }
}
