//! Exchanges the stability record with the store. Each second, this node sends its counts ([`publisher`]). Every few seconds, it
//! reads the counts of all nodes ([`Snapshot`]). Clients of the public service only see the latest snapshot.

pub(crate) mod public;
pub(crate) mod publisher;
#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use arc_swap::ArcSwapOption;
use tokio::{sync::watch, time::timeout};

use crate::{
    domain::faults::stability::{Hour, ModelCounters, WINDOW_HOURS},
    edges::clock,
    store::{StoreError, ledger::StabilityStore, time::StoreTime},
};

pub(crate) use crate::stability::publisher::Publisher;

/// The maximum pause after a failed read, before the next one.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(1);

/// The counts of the window's hours, as read from the store at one time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Snapshot {
    /// The time of the read, by the store's clock, in milliseconds since the Unix epoch.
    pub read_at_ms: i64,
    /// The counts of the window's hours, by hour. Hours without requests can be missing.
    pub buckets: BTreeMap<Hour, ModelCounters>,
}

/// Reads the stability record from the store periodically, and retains the latest snapshot for all readers.
pub(crate) struct Snapshots {
    store: Arc<dyn StabilityStore>,
    time: Arc<StoreTime>,
    refresh: Duration,
    latest: ArcSwapOption<Snapshot>,
}

impl Snapshots {
    /// Creates a reader of `store`, whose clock is `time`. [`Snapshots::run`] then reads it every `refresh`.
    pub(crate) fn new(store: Arc<dyn StabilityStore>, time: Arc<StoreTime>, refresh: Duration) -> Self {
        Self {
            store,
            time,
            refresh,
            latest: ArcSwapOption::empty(),
        }
    }

    /// The latest snapshot, of any age; `None` before the first successful read.
    pub(crate) fn get(&self) -> Option<Arc<Snapshot>> {
        self.latest.load_full()
    }

    /// Reads the record at once and then every `refresh`, until `stopped` becomes true or its sender is dropped. A failed read is
    /// repeated after at most [`RETRY_AFTER_MAX`]; until it succeeds, the previous snapshot stays.
    pub(crate) async fn run(self: Arc<Self>, mut stopped: watch::Receiver<bool>) {
        let mut failing = false;
        loop {
            let outcome = self.read().await;
            let pause = match &outcome {
                Ok(()) => self.refresh,
                Err(_) => self.refresh.min(RETRY_AFTER_MAX),
            };
            match &outcome {
                Ok(()) if failing => tracing::info!("the stability record is read from the store again"),
                Err(error) if !failing => {
                    tracing::warn!(%error, "cannot read the stability record from the store; the status pages show the previous one");
                }
                Ok(()) | Err(_) => {}
            }
            failing = outcome.is_err();
            if timeout(pause, stopped.wait_for(|stopped| *stopped)).await.is_ok() {
                return;
            }
        }
    }

    async fn read(&self) -> Result<(), StoreError> {
        let read_at_ms = self.time.now_ms(clock::instant());
        let now = Hour::from_unix_ms(read_at_ms);
        let buckets = self.store.buckets(now.plus(1 - WINDOW_HOURS), now).await?;
        self.latest.store(Some(Arc::new(Snapshot { read_at_ms, buckets })));
        Ok(())
    }
}
