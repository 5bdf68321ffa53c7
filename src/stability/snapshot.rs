//! The last published record, in memory: readers cost the store nothing.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use arc_swap::ArcSwapOption;
use tokio::{sync::watch, time::timeout};

use crate::{
    clock,
    domain::stability::{Bucket, Hour, WINDOW_HOURS},
    store::{StoreError, stability::StabilityStore, time::StoreTime},
};

#[cfg(test)]
mod tests;

/// The longest pause after a read that failed.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(1);

/// The hours of the window as the store told them at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// When they were read, by the store's clock, in milliseconds since the Unix epoch.
    pub read_at_ms: i64,
    /// The window's hours of that moment; those without requests may be missing.
    pub buckets: BTreeMap<Hour, Bucket>,
}

/// Reads the record again and again, for all who want to see it.
pub struct Snapshots {
    store: Arc<dyn StabilityStore>,
    time: Arc<StoreTime>,
    refresh: Duration,
    latest: ArcSwapOption<Snapshot>,
}

impl Snapshots {
    /// Of this store, whose clock is `time`, read every `refresh`. Nothing is read yet.
    pub fn new(store: Arc<dyn StabilityStore>, time: Arc<StoreTime>, refresh: Duration) -> Self {
        Self {
            store,
            time,
            refresh,
            latest: ArcSwapOption::empty(),
        }
    }

    /// What was read last, however long ago; `None`: nothing yet.
    pub fn get(&self) -> Option<Arc<Snapshot>> {
        self.latest.load_full()
    }

    /// Reads at once and every `refresh` from then on, until `stopped` turns true or its sender is gone. A read that failed is
    /// made again soon; what was read before stays.
    pub async fn run(self: Arc<Self>, mut stopped: watch::Receiver<bool>) {
        let mut failing = false;
        loop {
            let outcome = self.read().await;
            let pause = match &outcome {
                Ok(()) => self.refresh,
                Err(_) => self.refresh.min(RETRY_AFTER_MAX),
            };
            match &outcome {
                Ok(()) if failing => tracing::info!("the stability record is read again"),
                Err(error) if !failing => {
                    tracing::warn!(%error, "the stability record cannot be read, what was read last is shown");
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
        let now = Hour::of_ms(read_at_ms);
        let buckets = self.store.buckets(now.plus(1 - WINDOW_HOURS), now).await?;
        self.latest.store(Some(Arc::new(Snapshot { read_at_ms, buckets })));
        Ok(())
    }
}
