//! Builds the stability record: the publisher of this node's counts, and the snapshot of all nodes' counts.

use std::{sync::Arc, time::Duration};

use tokio::{runtime::Runtime, sync::watch, task::JoinHandle};

use crate::{
    journal::Journal,
    stability::{Publisher, Snapshots},
    store::{stability::StabilityStore, time::StoreTime},
    telemetry::metrics::Metrics,
};

/// What deals with the record.
pub(crate) struct Stability {
    /// What is published.
    pub snapshots: Arc<Snapshots>,
    publisher: Arc<Publisher>,
    /// Ends after the last telling, when `stop` has turned true.
    publishing: JoinHandle<()>,
}

impl Stability {
    /// Starts telling what the journal counts, and reading the record every `refresh`.
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

    /// Has the figures read when somebody scrapes.
    pub(crate) fn observe(&self, metrics: &Metrics) {
        let (publisher, snapshots) = (Arc::clone(&self.publisher), Arc::clone(&self.snapshots));
        metrics.sample(move |metrics| {
            let read_at = snapshots
                .get()
                .map_or(0, |snapshot| snapshot.read_at_ms.div_euclid(1000));
            metrics.store.stability_untold_hours.set(publisher.untold_hours());
            metrics.store.stability_read_at.set(read_at);
        });
    }

    /// Waits for the last telling. After the background was told to stop.
    pub(crate) async fn end(self) {
        let _ = self.publishing.await;
    }
}
