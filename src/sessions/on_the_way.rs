//! The names of state of one answer that are on their way to the store.

use std::{convert::Infallible, sync::Arc};

use tokio::sync::oneshot::{self, error::TryRecvError};

/// Is dropped when its name has been written, or will not be.
#[derive(Clone, Debug)]
pub(super) struct Receipt {
    _sender: Arc<oneshot::Sender<Infallible>>,
}

/// See the module.
#[derive(Debug)]
pub struct OnTheWay {
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
    /// What goes with one more name.
    pub(super) fn receipt(&self) -> Receipt {
        self.receipt.clone()
    }

    /// Nothing is added any more: what returns when all of it has arrived. `None`: all of it has.
    pub(super) fn rest(self) -> Option<impl Future<Output = ()> + Send + 'static> {
        let Self { receipt, mut arrived } = self;
        drop(receipt);
        // Nothing is ever sent: what is waited for is that the last receipt is gone.
        matches!(arrived.try_recv(), Err(TryRecvError::Empty)).then(|| async move {
            let _ = arrived.await;
        })
    }
}
