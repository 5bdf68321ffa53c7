//! Counts the events after which the store may have lost acknowledged changes.

use std::sync::Arc;

use tokio::sync::watch;

/// A number that moves at every reconnect and every change of a master, whoever notices it.
#[derive(Clone)]
pub(super) struct Epochs(Arc<watch::Sender<u64>>);

impl Epochs {
    pub(super) fn new() -> Self {
        Self(Arc::new(watch::channel(0).0))
    }

    pub(super) fn move_on(&self) {
        self.0.send_modify(|epoch| *epoch += 1);
    }

    pub(super) fn subscribe(&self) -> watch::Receiver<u64> {
        self.0.subscribe()
    }
}
