//! The names of one answer's state that are being written to the store.

use std::{convert::Infallible, sync::Arc};

use tokio::sync::oneshot::{self, error::TryRecvError};

/// Dropped when its name has been written, or will not be.
#[derive(Clone, Debug)]
pub(super) struct Receipt {
    _sender: Arc<oneshot::Sender<Infallible>>,
}

/// Counts the unwritten names of one answer, by the receipts that still exist.
#[derive(Debug)]
pub(crate) struct OnTheWay {
    receipt: Receipt,
    arrived: oneshot::Receiver<Infallible>,
}

impl Default for OnTheWay {
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

impl OnTheWay {
    /// A receipt for one more name.
    pub(super) fn receipt(&self) -> Receipt {
        self.receipt.clone()
    }

    /// A future that completes when all names are written; no more can be added. `None` if all are.
    pub(super) fn rest(self) -> Option<impl Future<Output = ()> + Send + 'static> {
        let Self { receipt, mut arrived } = self;
        drop(receipt);
        // Nothing is ever sent; the receiver ends when the last receipt is dropped.
        matches!(arrived.try_recv(), Err(TryRecvError::Empty)).then(|| async move {
            let _ = arrived.await;
        })
    }
}
