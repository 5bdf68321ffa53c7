//! The write gate delays an answer's last bytes until its state is stored.

use std::{
    future::poll_fn,
    sync::atomic::{AtomicBool, Ordering},
    task::{Context, Poll, ready},
};

use parking_lot::Mutex;

use crate::{gateway::held_head::HeldHead, providers::sessions::WriteCompletion};

/// Delays the head and the last bytes of an answer on their way to the client. The head waits for the body ([`HeldHead`]). The
/// last bytes wait while the state that the answer has created is being written to the store.
///
/// The client's next request may follow those bytes at once: to another node, or to this one after a crash. The filter that gets
/// the last bytes shuts the gate and does not wait; the client's connection ([`super::client_stream`], [`super::client_h2`])
/// waits before it writes. The caller of [`WriteGate::shut`] limits the wait.
#[derive(Default)]
pub(crate) struct WriteGate {
    /// The answer's head.
    pub head: HeldHead,
    /// Read before each write. `until` is locked only while the gate is shut.
    is_shut: AtomicBool,
    until: Mutex<Option<WriteCompletion>>,
}

impl WriteGate {
    /// Shuts the gate until `until` completes.
    pub(crate) fn shut(&self, until: WriteCompletion) {
        *self.until.lock() = Some(until);
        self.is_shut.store(true, Ordering::Release);
    }

    /// Ready if bytes may pass; otherwise the task of `cx` is woken when they may.
    pub(crate) fn poll_open(&self, cx: &mut Context<'_>) -> Poll<()> {
        if !self.is_shut.load(Ordering::Acquire) {
            return Poll::Ready(());
        }
        let mut until = self.until.lock();
        if let Some(written) = until.as_mut() {
            ready!(written.as_mut().poll(cx));
        }
        *until = None;
        self.is_shut.store(false, Ordering::Release);
        Poll::Ready(())
    }

    /// Waits until bytes may pass.
    pub(crate) async fn open(&self) {
        poll_fn(|cx| self.poll_open(cx)).await;
    }
}

impl std::fmt::Debug for WriteGate {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("WriteGate")
            .field("head", &self.head)
            .field("is_shut", &self.is_shut)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn nothing_passes_while_it_is_shut_and_everything_after() {
        let gate = WriteGate::default();
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
