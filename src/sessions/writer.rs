//! Brings what is remembered of state at providers to the store, in order, some at a time.

use std::{sync::Arc, time::Duration};

use tokio::sync::{mpsc, watch};

use super::on_the_way::Receipt;
use crate::{
    clock,
    domain::{provider_state::StateKey, session_hint::ServedBy},
    store::sessions::SessionStore,
};

/// How many names of state wait to be written, some 100 bytes each; more are remembered by this node alone.
pub(super) const QUEUE_MAX: usize = 65_536;
/// How many are written at once.
const BATCH_MAX: usize = 128;
/// After how long a write that failed is tried again.
const WRITE_AGAIN: Duration = Duration::from_secs(1);

/// A name of state that waits to be written. Its receipt goes with it.
pub(super) struct Waiting {
    pub(super) name: (StateKey, ServedBy),
    pub(super) receipt: Receipt,
}

/// What [`super::Sessions::new`] leaves to be written; run it in the background.
pub struct Writer {
    pub(super) store: Arc<dyn SessionStore>,
    pub(super) queue: mpsc::Receiver<Waiting>,
    /// Whether the last write failed.
    pub(super) fails: watch::Sender<bool>,
}

impl Writer {
    /// Writes until `stop` turns true, then what is left. What a store that is away did not take waits for it.
    pub async fn run(mut self, mut stop: watch::Receiver<bool>) {
        let mut batch = Vec::with_capacity(BATCH_MAX);
        loop {
            let stopping = async {
                let _ = stop.wait_for(|stop| *stop).await;
            };
            let count = tokio::select! {
                count = self.queue.recv_many(&mut batch, BATCH_MAX) => count,
                () = stopping => {
                    // What waits already is still received; then there is nothing more.
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

    /// Writes until the store has taken all of it, or nobody can wait for that any longer.
    async fn write(&self, names: &[(StateKey, ServedBy)], stop: &mut watch::Receiver<bool>) {
        while let Err(error) = self.store.remember(names, clock::unix_seconds()).await {
            self.fails.send_replace(true);
            tracing::warn!(%error, names = names.len(), "whose state at providers is could not be written");
            let stopping = stop.wait_for(|stop| *stop);
            if tokio::time::timeout(WRITE_AGAIN, stopping).await.is_ok() {
                return;
            }
        }
        self.fails.send_if_modified(std::mem::take);
    }
}
