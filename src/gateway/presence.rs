//! Tracks whether a request's client is still connected, and detaches the answer if it is not.
//!
//! The client's connection notices a disconnect first ([`super::client_stream`] over HTTP/1.1, [`super::client_h2`] over HTTP/2).
//! If Pingora can no longer read from or write to a client, it ends the request and closes the connection to the provider. So the
//! client's connection first calls [`Presence::on_disconnect`]. If that detaches the answer, the connection closes the socket or
//! stream, discards later writes and hides the disconnect. Pingora then reads the answer to its end.
//!
//! A detached answer needs a permit. The permit is acquired when the client disconnects, and returned at the end of the request.

use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::{
    edges::clock,
    telemetry::metrics::{DetachedEnd, GaugeGuard, Metrics},
};

/// The limits on a request that apply once its client has disconnected.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DetachLimits {
    /// Whether the answer is a stream. If a client closes only its sending side, weir assumes that the client no longer reads a
    /// stream, but that it may be waiting for a non-streaming answer.
    pub stream: bool,
    /// The maximum time for which the detached answer may run.
    pub finish: Duration,
}

/// Tracks whether the client of one request is still connected. Exists only for answers that may outlive their client.
#[derive(Debug)]
pub(crate) struct Presence {
    limits: DetachLimits,
    metrics: Arc<Metrics>,
    permits: Arc<Semaphore>,
    permit: OnceLock<DetachedPermit>,
    started: Instant,
    /// The time at which the answer was detached, in milliseconds after `started`; 0 if it is not detached.
    since_ms: AtomicU64,
    request_read: AtomicBool,
    left: AtomicBool,
    over: AtomicBool,
}

/// The permit of one detached answer. While it exists, the metric for detached answers counts the answer.
#[derive(Debug)]
struct DetachedPermit {
    _permit: OwnedSemaphorePermit,
    _counted: GaugeGuard,
}

impl Presence {
    /// Starts to track a connected client. `places` limits the number of detached answers.
    pub(crate) fn new(terms: DetachLimits, places: Arc<Semaphore>, metrics: Arc<Metrics>) -> Arc<Self> {
        Arc::new(Self {
            limits: terms,
            metrics,
            permits: places,
            permit: OnceLock::new(),
            started: clock::instant(),
            since_ms: AtomicU64::new(0),
            request_read: AtomicBool::new(false),
            left: AtomicBool::new(false),
            over: AtomicBool::new(false),
        })
    }

    /// Records that the request has been read to its end. A disconnect before that ends the request.
    pub(crate) fn on_request_read(&self) {
        self.request_read.store(true, Ordering::Release);
    }

    /// Whether the request has been read to its end.
    pub(crate) fn is_request_read(&self) -> bool {
        self.request_read.load(Ordering::Acquire)
    }

    /// Whether a client that only closes its sending side may still read its answer.
    pub(crate) fn may_still_read(&self) -> bool {
        !self.limits.stream
    }

    /// Handles a client that has closed its sending side, but may still read its answer. Returns false if the request must end
    /// nevertheless.
    pub(crate) fn on_half_close(&self) -> bool {
        self.detach()
    }

    /// Handles a disconnect of the client. Returns true if the answer is detached: the caller must then hide the disconnect and
    /// discard further writes. Returns false if the request must end.
    pub(crate) fn on_disconnect(&self) -> bool {
        let goes_on = self.is_request_read() && self.detach();
        if goes_on {
            self.left.store(true, Ordering::Release);
        }
        goes_on
    }

    /// Whether the client has disconnected and the answer is detached.
    pub(crate) fn has_left(&self) -> bool {
        self.left.load(Ordering::Acquire)
    }

    /// Returns when the detached answer must end; `None` if the answer is not detached.
    pub(crate) fn due(&self) -> Option<Instant> {
        match self.since_ms.load(Ordering::Acquire) {
            0 => None,
            since => Some(self.started + Duration::from_millis(since) + self.limits.finish),
        }
    }

    /// The maximum time for which the detached answer may run.
    pub(crate) fn time_limit(&self) -> Duration {
        self.limits.finish
    }

    /// Records the end of the request. `whole` says whether the complete answer was read. Later events on the connection no
    /// longer affect this request.
    pub(crate) fn close(&self, whole: bool) {
        if self.over.swap(true, Ordering::AcqRel) {
            return;
        }
        if self.has_left() {
            let end = if whole {
                DetachedEnd::Complete
            } else {
                DetachedEnd::Broken
            };
            self.metrics.requests.record_detached(end);
        }
    }

    /// Whether the request has ended.
    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    /// Acquires the permit of a detached answer, unless the request has one. Returns false if no permit is free.
    fn detach(&self) -> bool {
        if self.permit.get().is_some() {
            return true;
        }
        let Ok(permit) = Arc::clone(&self.permits).try_acquire_owned() else {
            self.metrics.requests.record_detached(DetachedEnd::NoPermit);
            return false;
        };
        let place = DetachedPermit {
            _permit: permit,
            _counted: self.metrics.requests.unattended.guard(),
        };
        if self.permit.set(place).is_ok() {
            let since = clock::instant().saturating_duration_since(self.started).as_millis();
            let since = u64::try_from(since).unwrap_or(u64::MAX).max(1);
            self.since_ms.store(since, Ordering::Release);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn presence(places: &Arc<Semaphore>, stream: bool) -> Arc<Presence> {
        let terms = DetachLimits {
            stream,
            finish: Duration::from_secs(10),
        };
        let metrics = Metrics::new(&[], &[]).expect("metrics");
        let presence = Presence::new(terms, Arc::clone(places), Arc::new(metrics));
        presence.on_request_read();
        presence
    }

    #[test]
    fn a_place_is_taken_by_leaving_and_given_back_with_the_request() {
        let places = Arc::new(Semaphore::new(1));
        let (first, second) = (presence(&places, true), presence(&places, true));
        assert_eq!((places.available_permits(), first.due()), (1, None));
        assert!(first.on_disconnect() && first.on_disconnect() && first.has_left());
        assert!(first.due().is_some());
        assert!(!second.on_disconnect() && !second.has_left() && second.due().is_none());
        drop(first);
        assert!(second.on_disconnect());
    }

    #[test]
    fn who_leaves_before_the_end_of_the_request_ends_it() {
        let places = Arc::new(Semaphore::new(1));
        let presence = Presence::new(presence(&places, true).limits, Arc::clone(&places), {
            Arc::new(Metrics::new(&[], &[]).expect("metrics"))
        });
        assert!(!presence.on_disconnect());
        assert_eq!(places.available_permits(), 1);
    }

    #[test]
    fn who_stops_sending_has_a_place_and_has_not_left() {
        let places = Arc::new(Semaphore::new(1));
        let presence = presence(&places, false);
        assert!(presence.may_still_read() && presence.on_half_close() && !presence.has_left());
        assert!(presence.due().is_some() && presence.on_disconnect() && presence.has_left());
    }
}
