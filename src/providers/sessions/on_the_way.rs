//! The names of one answer's state that are being written to the store.

use std::{convert::Infallible, sync::Arc};

use tokio::sync::oneshot::{self, error::TryRecvError};

/// Exists until its name has been written, or will not be.
#[derive(Clone, Debug)]
pub(super) struct Receipt {
    _sender: Arc<oneshot::Sender<Infallible>>,
}

/// The names of one answer's state that are being written to the store: one for each receipt that still exists.
#[derive(Debug)]
pub(crate) struct PendingWrites {
    receipt: Receipt,
    arrived: oneshot::Receiver<Infallible>,
}

impl Default for PendingWrites {
    fn default() -> Self {
        let (sender, arrived) = oneshot::channel();
        Self {
            receipt: Receipt {
                _sender: Arc::new(sender),
            },
            arrived,
        }
    }
}

impl PendingWrites {
    /// A receipt for one more name.
    pub(super) fn receipt(&self) -> Receipt {
        self.receipt.clone()
    }

    /// A future that completes when all names are written; `None` if all are. No more can be added.
    pub(super) fn completion(self) -> Option<impl Future<Output = ()> + Send + 'static> {
        let Self { receipt, mut arrived } = self;
        drop(receipt);
        // No value is ever sent; the receiver completes when the last receipt is dropped.
        matches!(arrived.try_recv(), Err(TryRecvError::Empty)).then(|| async move {
            let _ = arrived.await;
        })
    }
}
