//! Tracks whether a request's client is still connected, and what becomes of the answer if it is not.
//!
//! The client's connection is the first to know ([`super::client_stream`] over HTTP/1.1, [`super::client_h2`] over
//! HTTP/2). Pingora ends a request whose client it can no longer read from or write to, and closes the provider's
//! connection with it. If the answer is to be read to its end anyway, the connection asks [`Presence::leaves`] before
//! it tells Pingora. If there is room, it closes the socket or stream and discards what is still written to it, and
//! Pingora goes on.
//!
//! The permit for that is taken when a client disconnects, not before, and returned with the end of the request.

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
    telemetry::metrics::{GaugeGuard, Metrics, UnattendedEnd},
};

/// The limits that apply once the client has disconnected.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    /// The answer is a stream. A client that only closes its sending side has left a stream, but may wait for an answer
    /// in one piece.
    pub stream: bool,
    /// How long the answer may run on.
    pub finish: Duration,
}

/// Whether the client of one request is still connected. Exists only for answers that may outlive their client.
#[derive(Debug)]
pub(crate) struct Presence {
    terms: Terms,
    metrics: Arc<Metrics>,
    places: Arc<Semaphore>,
    place: OnceLock<Place>,
    started: Instant,
    /// Milliseconds after `started` at which the answer began to run on without its client; 0 before.
    since_ms: AtomicU64,
    asked: AtomicBool,
    left: AtomicBool,
    over: AtomicBool,
}

/// The permit of one answer that runs on, and its gauge.
#[derive(Debug)]
struct Place {
    _permit: OwnedSemaphorePermit,
    _counted: GaugeGuard,
}

impl Presence {
    /// For a connected client. `places` limits the answers that run on without their clients.
    pub(crate) fn new(terms: Terms, places: Arc<Semaphore>, metrics: Arc<Metrics>) -> Arc<Self> {
        Arc::new(Self {
            terms,
            metrics,
            places,
            place: OnceLock::new(),
            started: clock::instant(),
            since_ms: AtomicU64::new(0),
            asked: AtomicBool::new(false),
            left: AtomicBool::new(false),
            over: AtomicBool::new(false),
        })
    }

    /// The request has been read to its end. A client that disconnects earlier ends its request.
    pub(crate) fn asked(&self) {
        self.asked.store(true, Ordering::Release);
    }

    /// Whether the request has been read to its end.
    pub(crate) fn has_asked(&self) -> bool {
        self.asked.load(Ordering::Acquire)
    }

    /// Whether a client that only closes its sending side may still be waiting.
    pub(crate) fn listens_on(&self) -> bool {
        !self.terms.stream
    }

    /// The client has closed its sending side, but may still be waiting. Returns false if the request is to end as if
    /// it were not.
    pub(crate) fn stops_sending(&self) -> bool {
        self.runs_on()
    }

    /// The client has disconnected. Returns true if the answer is to be read to its end anyway: then the caller must
    /// hide the disconnect and discard further writes. Returns false if the request is to end.
    pub(crate) fn leaves(&self) -> bool {
        let goes_on = self.has_asked() && self.runs_on();
        if goes_on {
            self.left.store(true, Ordering::Release);
        }
        goes_on
    }

    /// Whether the client has disconnected and the answer is read without it.
    pub(crate) fn has_left(&self) -> bool {
        self.left.load(Ordering::Acquire)
    }

    /// When the answer must end, once it runs on without its client.
    pub(crate) fn due(&self) -> Option<Instant> {
        match self.since_ms.load(Ordering::Acquire) {
            0 => None,
            since => Some(self.started + Duration::from_millis(since) + self.terms.finish),
        }
    }

    /// How long the answer may run on without its client.
    pub(crate) fn finish(&self) -> Duration {
        self.terms.finish
    }

    /// Ends the request; `whole` says whether its answer was read to its end. Later events on the connection no longer
    /// concern this request.
    pub(crate) fn close(&self, whole: bool) {
        if self.over.swap(true, Ordering::AcqRel) {
            return;
        }
        if self.has_left() {
            let end = if whole {
                UnattendedEnd::Whole
            } else {
                UnattendedEnd::BrokenOff
            };
            self.metrics.requests.count_unattended(end);
        }
    }

    /// Whether the request has ended.
    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    /// Takes the permit to run on, unless it was taken already. Returns false if none is free.
    fn runs_on(&self) -> bool {
        if self.place.get().is_some() {
            return true;
        }
        let Ok(permit) = Arc::clone(&self.places).try_acquire_owned() else {
            self.metrics.requests.count_unattended(UnattendedEnd::NoPlace);
            return false;
        };
        let place = Place {
            _permit: permit,
            _counted: self.metrics.requests.unattended.guard(),
        };
        if self.place.set(place).is_ok() {
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
        let terms = Terms {
            stream,
            finish: Duration::from_secs(10),
        };
        let metrics = Metrics::new(&[], &[]).expect("metrics");
        let presence = Presence::new(terms, Arc::clone(places), Arc::new(metrics));
        presence.asked();
        presence
    }

    #[test]
    fn a_place_is_taken_by_leaving_and_given_back_with_the_request() {
        let places = Arc::new(Semaphore::new(1));
        let (first, second) = (presence(&places, true), presence(&places, true));
        assert_eq!((places.available_permits(), first.due()), (1, None));
        assert!(first.leaves() && first.leaves() && first.has_left());
        assert!(first.due().is_some());
        assert!(!second.leaves() && !second.has_left() && second.due().is_none());
        drop(first);
        assert!(second.leaves());
    }

    #[test]
    fn who_leaves_before_the_end_of_the_request_ends_it() {
        let places = Arc::new(Semaphore::new(1));
        let presence = Presence::new(presence(&places, true).terms, Arc::clone(&places), {
            Arc::new(Metrics::new(&[], &[]).expect("metrics"))
        });
        assert!(!presence.leaves());
        assert_eq!(places.available_permits(), 1);
    }

    #[test]
    fn who_stops_sending_has_a_place_and_has_not_left() {
        let places = Arc::new(Semaphore::new(1));
        let presence = presence(&places, false);
        assert!(presence.listens_on() && presence.stops_sending() && !presence.has_left());
        assert!(presence.due().is_some() && presence.leaves() && presence.has_left());
    }
}
