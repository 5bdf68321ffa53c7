//! Graceful shutdown of the gateway: counts running requests and connections, accepts nothing new once closing, and at
//! the deadline ends what still runs with an error that its client understands.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use tokio::sync::{Notify, watch};

/// Counts running requests and connections, and tells them how far the shutdown is. Clones share the state.
#[derive(Clone, Debug, Default)]
pub(crate) struct Drain {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    requests: Count,
    connections: Count,
    closing: watch::Sender<bool>,
    cut: watch::Sender<bool>,
}

/// How many there are. Only their end is waited for, so no change but the last one wakes anybody.
#[derive(Debug, Default)]
struct Count {
    number: AtomicUsize,
    none: Notify,
}

impl Count {
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

    /// Returns when there are none.
    async fn none(&self) {
        loop {
            let mut none = std::pin::pin!(self.none.notified());
            // Before the look, so that no end after it is missed.
            none.as_mut().enable();
            if self.get() == 0 {
                return;
            }
            none.await;
        }
    }
}

/// Counts one running request, until dropped.
#[derive(Debug)]
pub(crate) struct InFlight {
    drain: Drain,
}

/// Counts one client connection, until dropped.
#[derive(Debug)]
pub(crate) struct Connected {
    drain: Drain,
}

impl Drain {
    /// Counts a request that begins.
    pub(crate) fn enter(&self) -> InFlight {
        self.shared.requests.add();
        InFlight { drain: self.clone() }
    }

    /// Counts a client connection.
    pub(crate) fn connect(&self) -> Connected {
        self.shared.connections.add();
        Connected { drain: self.clone() }
    }

    /// The number of running requests.
    pub(crate) fn running(&self) -> usize {
        self.shared.requests.get()
    }

    /// Waits until no request runs.
    pub(crate) async fn idle(&self) {
        self.shared.requests.none().await;
    }

    /// Waits until no client is connected.
    pub(crate) async fn disconnected(&self) {
        self.shared.connections.none().await;
    }

    /// Begins the shutdown: no new requests are accepted, and connections end with their running request.
    pub(crate) fn close(&self) {
        self.shared.closing.send_replace(true);
    }

    /// Whether the shutdown has begun.
    pub(crate) fn is_closing(&self) -> bool {
        *self.shared.closing.borrow()
    }

    /// A receiver that turns true when the shutdown begins.
    pub(crate) fn closing(&self) -> watch::Receiver<bool> {
        self.shared.closing.subscribe()
    }

    /// Ends the grace period: whatever still runs is cut off.
    pub(crate) fn cut(&self) {
        self.shared.cut.send_replace(true);
    }

    /// Whether the grace period is over.
    pub(crate) fn is_cut(&self) -> bool {
        *self.shared.cut.borrow()
    }

    /// Returns when the grace period is over.
    pub(crate) async fn out_of_time(&self) {
        let mut cut = self.shared.cut.subscribe();
        // The sender lives as long as this value, so waiting cannot fail.
        let _ = cut.wait_for(|cut| *cut).await;
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.drain.shared.requests.remove();
    }
}

impl Drop for Connected {
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
            async move { drain.idle().await }
        });
        drop(second);
        waiting.await.expect("no panic");
        assert_eq!(drain.running(), 0);
    }

    #[tokio::test]
    async fn only_the_end_of_the_last_request_wakes_who_waits() {
        let drain = Drain::default();
        let (first, second) = (drain.enter(), drain.enter());
        let mut waiting = std::pin::pin!(drain.idle());
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
        drain.idle().await;
        assert!(futures_util::poll!(std::pin::pin!(drain.disconnected())).is_pending());
        drop(connected);
        drain.disconnected().await;
    }

    #[tokio::test]
    async fn each_step_of_the_end_is_told_to_who_waits_and_to_who_comes_later() {
        let drain = Drain::default();
        assert!(!drain.is_closing() && !drain.is_cut());
        let mut closing = drain.closing();
        drain.close();
        assert!(drain.is_closing() && closing.wait_for(|closing| *closing).await.is_ok());
        assert!(!drain.is_cut());
        let waiting = tokio::spawn({
            let drain = drain.clone();
            async move { drain.out_of_time().await }
        });
        tokio::task::yield_now().await;
        drain.cut();
        waiting.await.expect("no panic");
        drain.out_of_time().await;
        assert!(drain.is_cut());
    }
}
