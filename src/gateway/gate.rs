//! The gate in front of a client: shut while what an answer has made at the provider is on its way to the store.
//!
//! An answer's last bytes wait there, because the client's next request may come as soon as it has them: to another node, or to
//! this one after it was killed. The filter that sees those bytes shuts the gate and does not wait; the client's connection
//! ([`super::client_stream`], [`super::client_h2`]) waits before it writes. Whoever shuts it bounds the wait.

use std::{
    future::poll_fn,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, ready},
};

use crate::sessions::Written;

/// Open, until it is shut for a while.
#[derive(Default)]
pub struct Gate {
    /// Looked at before each write; `until` only while it is shut.
    is_shut: AtomicBool,
    until: Mutex<Option<Written>>,
}

impl Gate {
    /// Nothing passes until `until` returns.
    pub fn shut(&self, until: Written) {
        *self.lock() = Some(until);
        self.is_shut.store(true, Ordering::Release);
    }

    /// Whether something may pass; otherwise the task of `cx` is woken when it may.
    pub fn poll_open(&self, cx: &mut Context<'_>) -> Poll<()> {
        if !self.is_shut.load(Ordering::Acquire) {
            return Poll::Ready(());
        }
        let mut until = self.lock();
        if let Some(written) = until.as_mut() {
            ready!(written.as_mut().poll(cx));
        }
        *until = None;
        self.is_shut.store(false, Ordering::Release);
        Poll::Ready(())
    }

    /// Returns when something may pass.
    pub async fn open(&self) {
        poll_fn(|cx| self.poll_open(cx)).await;
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Written>> {
        self.until.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Gate {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Gate")
            .field("is_shut", &self.is_shut)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn nothing_passes_while_it_is_shut_and_everything_after() {
        let gate = Gate::default();
        gate.open().await;
        let (sender, receiver) = tokio::sync::oneshot::channel::<()>();
        gate.shut(Box::pin(async move { receiver.await.expect("written") }));
        let mut waiting = std::pin::pin!(gate.open());
        assert!(futures_util::poll!(&mut waiting).is_pending());
        sender.send(()).expect("somebody waits");
        waiting.await;
        gate.open().await;
    }
}
