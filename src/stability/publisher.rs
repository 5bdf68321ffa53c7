//! Sends this node's counts to the store.
//!
//! A share is sent in full once its counts are on this node's disk, so a share sent after a crash has everything that
//! an earlier one had. Sending it again has no effect, so after a failed call only its hours need to be remembered.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use tokio::{sync::watch, time::sleep};

use crate::{
    domain::{
        faults::stability::{Hour, Share},
        ledger::NodeId,
    },
    journal::{Journal, Position},
    store::{
        StoreError,
        stability::{SHARES_MAX, StabilityStore},
    },
};

#[cfg(test)]
mod tests;

/// How long a changed count waits for others to be sent with it, and how long a failure rests.
pub(crate) const FLUSH_EVERY: Duration = Duration::from_secs(1);

/// What this node has counted; the publisher's view of the journal.
#[async_trait]
pub(crate) trait Counted: Send + Sync {
    /// The shares of the hours that have grown since the last call (after a start: all), and the position of the last
    /// record counted.
    fn changed(&self) -> (Vec<Share>, Position);

    /// The hours of all known shares.
    fn hours(&self) -> Vec<Hour>;

    /// Makes [`Counted::changed`] return the shares of these hours again.
    fn untold(&self, hours: &[Hour]);

    /// The store has taken every share up to this position.
    fn told(&self, to: Position);

    /// Waits until it is known whether everything up to this position is on disk.
    async fn synced(&self, to: Position);

    /// Where the next record will stand.
    fn end(&self) -> Position;

    /// Waits until a record stands there, on disk.
    async fn beyond(&self, end: Position);
}

#[async_trait]
impl Counted for Journal {
    fn changed(&self) -> (Vec<Share>, Position) {
        self.shares_changed()
    }

    fn hours(&self) -> Vec<Hour> {
        self.shares().into_iter().map(|share| share.hour).collect()
    }

    fn untold(&self, hours: &[Hour]) {
        self.shares_untold(hours);
    }

    fn told(&self, to: Position) {
        self.shares_told(to);
    }

    async fn synced(&self, to: Position) {
        // A record that the disk has refused is charged anyway, so it is counted as well.
        let _ = Journal::synced(self, to).await;
    }

    fn end(&self) -> Position {
        Journal::end(self)
    }

    async fn beyond(&self, end: Position) {
        self.on_disk_beyond(end.number()).await;
    }
}

/// The task that sends counts to the store.
pub(crate) struct Publisher {
    counted: Arc<dyn Counted>,
    store: Arc<dyn StabilityStore>,
    node: NodeId,
    untold_hours: AtomicUsize,
}

impl Publisher {
    /// Sends what `counted` has, in the name of `node`.
    pub(crate) fn new(counted: Arc<dyn Counted>, store: Arc<dyn StabilityStore>, node: NodeId) -> Self {
        Self {
            counted,
            store,
            node,
            untold_hours: AtomicUsize::new(0),
        }
    }

    /// How many hours the store did not take at the last attempt.
    pub(crate) fn untold_hours(&self) -> usize {
        self.untold_hours.load(Ordering::Relaxed)
    }

    /// Runs until `stopped` turns true or its sender is dropped, then sends once more.
    pub(crate) async fn run(self: Arc<Self>, mut stopped: watch::Receiver<bool>) {
        let mut epochs = self.store.epochs();
        let (mut failing, mut sent) = (false, None);
        loop {
            let ended = tokio::select! {
                _ = stopped.wait_for(|stopped| *stopped) => true,
                () = self.due(sent, epochs.clone()) => false,
            };
            let end = self.counted.end();
            let outcome = self.flush(&mut epochs).await;
            match &outcome {
                Ok(()) if failing => tracing::info!("the stability record is told again"),
                Err(error) if !failing => {
                    tracing::warn!(%error, "the store does not take the stability record, the journal keeps it; it is tried again");
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

    /// Waits until there may be something to send, and a little for more. All before `sent` is; `None`: that is not known.
    async fn due(&self, sent: Option<Position>, mut epochs: watch::Receiver<u64>) {
        if let Some(sent) = sent {
            tokio::select! {
                () = self.counted.beyond(sent) => {}
                // A dropped store changes no more.
                Ok(()) = epochs.changed() => {}
            }
        }
        sleep(FLUSH_EVERY).await;
    }

    /// Sends what has changed, or everything if the store may have lost something.
    async fn flush(&self, epochs: &mut watch::Receiver<u64>) -> Result<(), StoreError> {
        // Marked as seen before anything is sent, so a change meanwhile is seen the next time. A dropped store changes
        // no more.
        if epochs.has_changed().unwrap_or(false) {
            epochs.mark_unchanged();
            self.counted.untold(&self.counted.hours());
        }
        let (shares, to) = self.counted.changed();
        if shares.is_empty() {
            self.untold_hours.store(0, Ordering::Relaxed);
            self.counted.told(to);
            return Ok(());
        }
        let mut told = 0;
        let outcome = self.tell(&shares, to, &mut told).await;
        let left: Vec<Hour> = shares.iter().skip(told).map(|share| share.hour).collect();
        self.untold_hours.store(left.len(), Ordering::Relaxed);
        if left.is_empty() {
            self.counted.told(to);
        } else {
            self.counted.untold(&left);
        }
        outcome
    }

    /// Sends the shares; `told` counts how many the store has taken.
    async fn tell(&self, shares: &[Share], to: Position, told: &mut usize) -> Result<(), StoreError> {
        self.counted.synced(to).await;
        for part in shares.chunks(SHARES_MAX) {
            self.store.tell(&self.node, part).await?;
            *told += part.len();
        }
        Ok(())
    }
}
