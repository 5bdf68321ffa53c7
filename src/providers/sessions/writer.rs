//! Writes recorded state to the store, in order and in batches.

use std::{sync::Arc, time::Duration};

use tokio::sync::{mpsc, watch};

use super::on_the_way::Receipt;
use crate::{
    domain::wire::{provider_state::StateKey, session_hint::ServedBy},
    edges::clock,
    store::sessions::SessionStore,
};

/// The maximum number of names that wait to be written, about 100 bytes each. Further ones are known to this node only.
pub(super) const QUEUE_MAX: usize = 65_536;
/// The maximum number of names written at once.
const BATCH_MAX: usize = 128;
/// The pause after a failed write.
const WRITE_AGAIN: Duration = Duration::from_secs(1);

/// A name that waits to be written, with its receipt.
pub(super) struct QueuedWrite {
    pub(super) name: (StateKey, ServedBy),
    pub(super) receipt: Receipt,
}

/// The background task that writes recorded state to the store, in order and in batches.
pub(crate) struct StateWriter {
    pub(super) store: Arc<dyn SessionStore>,
    pub(super) queue: mpsc::Receiver<QueuedWrite>,
    /// Whether the last write failed.
    pub(super) fails: watch::Sender<bool>,
}

impl StateWriter {
    /// Writes until `stop` turns true, and then the names that are queued. Names wait while the store is unreachable.
    pub(crate) async fn run(mut self, mut stop: watch::Receiver<bool>) {
        let mut batch = Vec::with_capacity(BATCH_MAX);
        loop {
            let stopping = async {
                let _ = stop.wait_for(|stop| *stop).await;
            };
            let count = tokio::select! {
                count = self.queue.recv_many(&mut batch, BATCH_MAX) => count,
                () = stopping => {
                    // Only names that are queued already are received.
                    self.queue.close();
                    self.queue.recv_many(&mut batch, QUEUE_MAX).await
                }
            };
            if count == 0 {
                return;
            }
            let (names, receipts): (Vec<_>, Vec<_>) =
                batch.drain(..).map(|waiting| (waiting.name, waiting.receipt)).unzip();
            self.write(&names, &mut stop).await;
            drop(receipts);
        }
    }

    /// Repeats a write until it succeeds, or until `stop` turns true.
    async fn write(&self, names: &[(StateKey, ServedBy)], stop: &mut watch::Receiver<bool>) {
        while let Err(error) = self.store.remember(names, clock::unix_seconds()).await {
            self.fails.send_replace(true);
            tracing::warn!(%error, names = names.len(), "cannot write who owns state at providers");
            let stopping = stop.wait_for(|stop| *stop);
            if tokio::time::timeout(WRITE_AGAIN, stopping).await.is_ok() {
                return;
            }
        }
        self.fails.send_if_modified(std::mem::take);
    }
}
