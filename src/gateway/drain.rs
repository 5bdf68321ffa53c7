//! Graceful shutdown of the gateway. Once the shutdown has begun, the gateway accepts no new requests. At the deadline, it ends
//! the requests that are still running. Their clients get an error that they understand.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use tokio::sync::{Notify, watch};

/// The state of the graceful shutdown. It counts running requests and connections, and notifies their tasks of the beginning and
/// the end of the drain. Clones share the state.
#[derive(Clone, Debug, Default)]
pub(crate) struct Drain {
    shared: Arc<DrainState>,
}

#[derive(Debug, Default)]
struct DrainState {
    requests: RunningCount,
    connections: RunningCount,
    closing: watch::Sender<bool>,
    cut: watch::Sender<bool>,
}

/// The number of running requests or connections. Waiting tasks are woken only when the number becomes zero.
#[derive(Debug, Default)]
struct RunningCount {
    number: AtomicUsize,
    none: Notify,
}

impl RunningCount {
    fn add(&self) {
        self.number.fetch_add(1, Ordering::AcqRel);
    }

    fn remove(&self) {
        if self.number.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.none.notify_waiters();
        }
    }

    fn get(&self) -> usize {
        self.number.load(Ordering::Acquire)
    }

    /// Waits until the number is zero.
    async fn wait_for_zero(&self) {
        loop {
            let mut none = std::pin::pin!(self.none.notified());
            // Registered before the number is read, so that a later change to zero is not missed.
            none.as_mut().enable();
            if self.get() == 0 {
                return;
            }
            none.await;
        }
    }
}

/// Counts one running request until this value is dropped.
#[derive(Debug)]
pub(crate) struct InFlight {
    drain: Drain,
}

/// Counts one client connection until this value is dropped.
#[derive(Debug)]
pub(crate) struct OpenConnection {
    drain: Drain,
}

impl Drain {
    /// Counts a new request until the returned value is dropped.
    pub(crate) fn enter(&self) -> InFlight {
        self.shared.requests.add();
        InFlight { drain: self.clone() }
    }

    /// Counts a client connection, until the returned value is dropped.
    pub(crate) fn connect(&self) -> OpenConnection {
        self.shared.connections.add();
        OpenConnection { drain: self.clone() }
    }

    /// The number of running requests.
    pub(crate) fn running(&self) -> usize {
        self.shared.requests.get()
    }

    /// Waits until no request runs.
    pub(crate) async fn requests_ended(&self) {
        self.shared.requests.wait_for_zero().await;
    }

    /// Waits until no client is connected.
    pub(crate) async fn connections_ended(&self) {
        self.shared.connections.wait_for_zero().await;
    }

    /// Begins the shutdown: no new requests are accepted, and each connection closes after its running request.
    pub(crate) fn close(&self) {
        self.shared.closing.send_replace(true);
    }

    /// Whether the shutdown has begun.
    pub(crate) fn is_closing(&self) -> bool {
        *self.shared.closing.borrow()
    }

    /// Returns a receiver whose value becomes true when the shutdown begins.
    pub(crate) fn closing(&self) -> watch::Receiver<bool> {
        self.shared.closing.subscribe()
    }

    /// Ends the drain: requests that still run are cut off.
    pub(crate) fn expire(&self) {
        self.shared.cut.send_replace(true);
    }

    /// Whether the drain has ended.
    pub(crate) fn is_expired(&self) -> bool {
        *self.shared.cut.borrow()
    }

    /// Waits until the drain has ended.
    pub(crate) async fn expired(&self) {
        let mut cut = self.shared.cut.subscribe();
        // The sender lives as long as `self`, so waiting cannot fail.
        let _ = cut.wait_for(|cut| *cut).await;
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.drain.shared.requests.remove();
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.drain.shared.connections.remove();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn idle_is_reached_when_the_last_request_has_ended() {
        let drain = Drain::default();
        let first = drain.enter();
        let second = drain.enter();
        assert_eq!(drain.running(), 2);
        drop(first);
        let waiting = tokio::spawn({
            let drain = drain.clone();
            async move { drain.requests_ended().await }
        });
        drop(second);
        waiting.await.expect("no panic");
        assert_eq!(drain.running(), 0);
    }

    #[tokio::test]
    async fn only_the_end_of_the_last_request_wakes_who_waits() {
        let drain = Drain::default();
        let (first, second) = (drain.enter(), drain.enter());
        let mut waiting = std::pin::pin!(drain.requests_ended());
        assert!(futures_util::poll!(&mut waiting).is_pending());
        drop(first);
        assert!(futures_util::poll!(&mut waiting).is_pending());
        drop(second);
        let third = drain.enter();
        assert!(futures_util::poll!(&mut waiting).is_pending(), "another one has begun");
        drop(third);
        waiting.await;
    }

    #[tokio::test]
    async fn connections_are_counted_apart_from_requests() {
        let drain = Drain::default();
        let connected = drain.connect();
        let request = drain.enter();
        drop(request);
        drain.requests_ended().await;
        assert!(futures_util::poll!(std::pin::pin!(drain.connections_ended())).is_pending());
        drop(connected);
        drain.connections_ended().await;
    }

    #[tokio::test]
    async fn each_step_of_the_end_is_told_to_who_waits_and_to_who_comes_later() {
        let drain = Drain::default();
        assert!(!drain.is_closing() && !drain.is_expired());
        let mut closing = drain.closing();
        drain.close();
        assert!(drain.is_closing() && closing.wait_for(|closing| *closing).await.is_ok());
        assert!(!drain.is_expired());
        let waiting = tokio::spawn({
            let drain = drain.clone();
            async move { drain.expired().await }
        });
        tokio::task::yield_now().await;
        drain.expire();
        waiting.await.expect("no panic");
        drain.expired().await;
        assert!(drain.is_expired());
    }
}
