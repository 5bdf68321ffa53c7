//! Exchanges the stability record with the store. Each second, this node sends its counts ([`Publisher`]). Every few seconds, it
//! reads the counts of all nodes ([`Snapshot`]). The public service displays only the latest snapshot.

pub(crate) mod public;
#[cfg(test)]
mod tests;

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use arc_swap::ArcSwapOption;
use async_trait::async_trait;
use tokio::{
    sync::watch,
    time::{sleep, timeout},
};

use crate::{
    domain::{
        faults::stability::{Hour, ModelCounters, NodeHourCounters, WINDOW_HOURS},
        ledger::NodeId,
    },
    edges::clock,
    journal::{Journal, Position},
    store::{
        StoreError,
        ledger::{SHARES_MAX, StabilityStore},
        time::StoreTime,
    },
};

/// The maximum pause between a failed read and the next read.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(1);

/// The counts of the hours of the window, as read from the store at one time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Snapshot {
    /// The time of the read, by the store's clock, in milliseconds since the Unix epoch.
    pub read_at_ms: i64,
    /// The counts by hour, for the hours of the window. Hours without requests can be missing.
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
    /// Creates a reader of `store`, whose clock is `time`. [`Snapshots::run`] then reads the store at the interval `refresh`.
    pub(crate) fn new(store: Arc<dyn StabilityStore>, time: Arc<StoreTime>, refresh: Duration) -> Self {
        Self {
            store,
            time,
            refresh,
            latest: ArcSwapOption::empty(),
        }
    }

    /// Returns the latest snapshot, of any age; `None` before the first successful read.
    pub(crate) fn get(&self) -> Option<Arc<Snapshot>> {
        self.latest.load_full()
    }

    /// Reads the record at once and then at the interval `refresh`, until `stopped` becomes true or its sender is dropped. A
    /// failed read is repeated after at most [`RETRY_AFTER_MAX`]. The previous snapshot is retained until a read succeeds.
    pub(crate) async fn run(self: Arc<Self>, mut stopped: watch::Receiver<bool>) {
        let mut failing = false;
        loop {
            let outcome = self.read().await;
            let pause = match &outcome {
                Ok(()) => self.refresh,
                Err(_) => self.refresh.min(RETRY_AFTER_MAX),
            };
            match &outcome {
                Ok(()) if failing => tracing::info!("weir can read the stability record from the store again"),
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

/// The time for which changed counts are gathered before they are sent. It is also the pause after a failure.
pub(crate) const FLUSH_EVERY: Duration = Duration::from_secs(1);

/// The source of this node's shares, which are its counts for each hour. The publisher reads the journal through this trait.
#[async_trait]
pub(crate) trait ShareSource: Send + Sync {
    /// Returns the shares that have grown since the last call, and the position of the last counted record. The first call after
    /// a start returns all shares.
    fn changed(&self) -> (Vec<NodeHourCounters>, Position);

    /// Returns the hours of all shares of this node.
    fn hours(&self) -> Vec<Hour>;

    /// Makes [`ShareSource::changed`] return the shares of these hours again.
    fn mark_unsent(&self, hours: &[Hour]);

    /// Records that the store has the shares of all records up to this position.
    fn mark_sent(&self, to: Position);

    /// Waits until every record up to this position is either on disk or known to be lost.
    async fn wait_synced(&self, to: Position);

    /// Returns the position that the next record will have.
    fn end(&self) -> Position;

    /// Waits until the record at the position `end` is on disk or known to be lost.
    async fn wait_beyond(&self, end: Position);
}

#[async_trait]
impl ShareSource for Journal {
    fn changed(&self) -> (Vec<NodeHourCounters>, Position) {
        self.take_changed_shares()
    }

    fn hours(&self) -> Vec<Hour> {
        self.shares().into_iter().map(|share| share.hour).collect()
    }

    fn mark_unsent(&self, hours: &[Hour]) {
        self.mark_unpublished(hours);
    }

    fn mark_sent(&self, to: Position) {
        self.mark_published(to);
    }

    async fn wait_synced(&self, to: Position) {
        // The result is ignored: a record that could not be written is nevertheless charged, so the publisher counts it.
        let _ = Journal::wait_until_synced(self, to).await;
    }

    fn end(&self) -> Position {
        Journal::end(self)
    }

    async fn wait_beyond(&self, end: Position) {
        self.wait_until_decided(end.number()).await;
    }
}

/// Sends the shares of this node to the store.
pub(crate) struct Publisher {
    counted: Arc<dyn ShareSource>,
    store: Arc<dyn StabilityStore>,
    node: NodeId,
    unsent_hours: AtomicUsize,
}

impl Publisher {
    /// Creates a publisher that sends the shares of `counted` to `store` as the shares of `node`.
    pub(crate) fn new(counted: Arc<dyn ShareSource>, store: Arc<dyn StabilityStore>, node: NodeId) -> Self {
        Self {
            counted,
            store,
            node,
            unsent_hours: AtomicUsize::new(0),
        }
    }

    /// Returns the number of hours whose shares the store did not accept at the last attempt.
    pub(crate) fn unsent_hours(&self) -> usize {
        self.unsent_hours.load(Ordering::Relaxed)
    }

    /// Sends changed shares until `stopped` becomes true or its sender is dropped. Then sends them once more and returns.
    pub(crate) async fn run(self: Arc<Self>, mut stopped: watch::Receiver<bool>) {
        let mut epochs = self.store.epochs();
        let (mut failing, mut sent) = (false, None);
        loop {
            let ended = tokio::select! {
                _ = stopped.wait_for(|stopped| *stopped) => true,
                () = self.wait_due(sent, epochs.clone()) => false,
            };
            let end = self.counted.end();
            let outcome = self.flush(&mut epochs).await;
            match &outcome {
                Ok(()) if failing => tracing::info!("weir can write the stability record to the store again"),
                Err(error) if !failing => {
                    tracing::warn!(%error, "cannot send counts for the stability record to the store; the journal keeps these counts, and weir sends them again");
                }
                Ok(()) | Err(_) => {}
            }
            failing = outcome.is_err();
            sent = outcome.is_ok().then_some(end);
            if ended {
                return;
            }
        }
    }

    /// Waits until a share may have changed, and then for [`FLUSH_EVERY`], in which further changes are gathered. All records
    /// before the position `sent` have been sent; `None` if this position is not known.
    async fn wait_due(&self, sent: Option<Position>, mut epochs: watch::Receiver<u64>) {
        if let Some(sent) = sent {
            tokio::select! {
                () = self.counted.wait_beyond(sent) => {}
                // If the sender of epochs is dropped, the epoch can no longer change, so only the journal is waited for.
                Ok(()) = epochs.changed() => {}
            }
        }
        sleep(FLUSH_EVERY).await;
    }

    /// Sends the changed shares, or all shares if the store may have lost some.
    async fn flush(&self, epochs: &mut watch::Receiver<u64>) -> Result<(), StoreError> {
        // The epoch is marked as seen before anything is sent, so a later change is noticed at the next flush. If the sender is
        // dropped, the epoch can no longer change.
        if epochs.has_changed().unwrap_or(false) {
            epochs.mark_unchanged();
            self.counted.mark_unsent(&self.counted.hours());
        }
        let (shares, to) = self.counted.changed();
        if shares.is_empty() {
            self.unsent_hours.store(0, Ordering::Relaxed);
            self.counted.mark_sent(to);
            return Ok(());
        }
        let mut told = 0;
        let outcome = self.send(&shares, to, &mut told).await;
        let left: Vec<Hour> = shares.iter().skip(told).map(|share| share.hour).collect();
        self.unsent_hours.store(left.len(), Ordering::Relaxed);
        if left.is_empty() {
            self.counted.mark_sent(to);
        } else {
            self.counted.mark_unsent(&left);
        }
        outcome
    }

    /// Sends the shares, and adds to `told` the number of shares that the store has accepted.
    async fn send(&self, shares: &[NodeHourCounters], to: Position, told: &mut usize) -> Result<(), StoreError> {
        self.counted.wait_synced(to).await;
        for part in shares.chunks(SHARES_MAX) {
            self.store.put_shares(&self.node, part).await?;
            *told += part.len();
        }
        Ok(())
    }
}
