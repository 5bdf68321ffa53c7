//! Whether the client of a request is still there, and what becomes of the answer when it is not.
//!
//! The client's connection is the first to know ([`super::client_stream`] over HTTP/1.1, [`super::client_h2`] over HTTP/2).
//! Pingora ends a request whose client it cannot read from or write to any more, and the provider's connection with it. So
//! where the answer is to be read to its end all the same, the connection asks [`Presence::leaves`] before it tells Pingora:
//! if there is a place, it gives the socket or the stream up and swallows what is still written to it, and Pingora goes on.
//!
//! A place is taken when a client leaves, not before, and given back with the request.

use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

use crate::{
    clock,
    metrics::{GaugeGuard, Metrics, UnattendedEnd},
};

/// What holds once the client has left.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// Whether the answer is a stream. A client that closes its sending side only has left it; for an answer in one piece
    /// it may well wait.
    pub stream: bool,
    /// How long the answer may run on.
    pub finish: Duration,
    /// How long the client may take no bytes before it counts as gone.
    pub write: Duration,
}

/// Whether the client of one request is still there; for answers that are read to their end without it.
#[derive(Debug)]
pub struct Presence {
    terms: Terms,
    metrics: Arc<Metrics>,
    places: Arc<Semaphore>,
    place: OnceLock<Place>,
    started: Instant,
    /// Milliseconds after `started` at which the answer began to run on; 0 before.
    since_ms: AtomicU64,
    limited: Notify,
    asked: AtomicBool,
    left: AtomicBool,
    over: AtomicBool,
}

/// One answer among those that run on.
#[derive(Debug)]
struct Place {
    _permit: OwnedSemaphorePermit,
    _counted: GaugeGuard,
}

impl Presence {
    /// The client is there. `places` bounds the answers that run on without theirs.
    pub fn new(terms: Terms, places: Arc<Semaphore>, metrics: Arc<Metrics>) -> Arc<Self> {
        Arc::new(Self {
            terms,
            metrics,
            places,
            place: OnceLock::new(),
            started: clock::instant(),
            since_ms: AtomicU64::new(0),
            limited: Notify::new(),
            asked: AtomicBool::new(false),
            left: AtomicBool::new(false),
            over: AtomicBool::new(false),
        })
    }

    /// The request has been read to its end. A client that leaves before has asked for nothing.
    pub fn asked(&self) {
        self.asked.store(true, Ordering::Release);
    }

    /// Whether the request has been read to its end.
    pub fn has_asked(&self) -> bool {
        self.asked.load(Ordering::Acquire)
    }

    /// Whether a client that closes its sending side only may still be waiting.
    pub fn listens_on(&self) -> bool {
        !self.terms.stream
    }

    /// How long the client may take no bytes before it counts as gone.
    pub fn write_limit(&self) -> Duration {
        self.terms.write
    }

    /// The client has closed its sending side and may still be waiting. True when the request goes on; otherwise it is to end
    /// as if nobody waited.
    pub fn stops_sending(&self) -> bool {
        self.runs_on()
    }

    /// The client has left. True when the answer is to be read to its end all the same: then nobody must be told of it but
    /// this, and what is written to the client must be swallowed. False when the request is to end.
    pub fn leaves(&self) -> bool {
        let goes_on = self.has_asked() && self.runs_on();
        if goes_on {
            self.left.store(true, Ordering::Release);
        }
        goes_on
    }

    /// Whether the client has left and the answer is read without it.
    pub fn has_left(&self) -> bool {
        self.left.load(Ordering::Acquire)
    }

    /// When the answer is to be broken off, once it runs on.
    pub fn due(&self) -> Option<Instant> {
        match self.since_ms.load(Ordering::Acquire) {
            0 => None,
            since => Some(self.started + Duration::from_millis(since) + self.terms.finish),
        }
    }

    /// Returns once [`Presence::due`] has changed; never if it has before.
    pub async fn limited(&self) {
        if self.due().is_some() {
            return std::future::pending().await;
        }
        self.limited.notified().await;
    }

    /// The request is over; `whole` says whether its answer was read to its end. What the connection does from now on is no
    /// longer about this request, whoever still knows of it.
    pub fn close(&self, whole: bool) {
        if self.over.swap(true, Ordering::AcqRel) {
            return;
        }
        if self.has_left() {
            let end = if whole {
                UnattendedEnd::Whole
            } else {
                UnattendedEnd::BrokenOff
            };
            self.metrics.unattended_answer(end);
        }
    }

    /// Whether the request is over.
    pub fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    /// Takes a place, if there is none yet.
    fn runs_on(&self) -> bool {
        if self.place.get().is_some() {
            return true;
        }
        let Ok(permit) = Arc::clone(&self.places).try_acquire_owned() else {
            self.metrics.unattended_answer(UnattendedEnd::NoPlace);
            return false;
        };
        let place = Place {
            _permit: permit,
            _counted: self.metrics.answer_unattended(),
        };
        if self.place.set(place).is_ok() {
            let since = clock::instant().saturating_duration_since(self.started).as_millis();
            let since = u64::try_from(since).unwrap_or(u64::MAX).max(1);
            self.since_ms.store(since, Ordering::Release);
            self.limited.notify_one();
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
            write: Duration::from_secs(1),
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

    #[tokio::test]
    async fn a_limit_that_comes_into_being_is_told_once() {
        let places = Arc::new(Semaphore::new(1));
        let presence = presence(&places, true);
        let told = tokio::spawn({
            let presence = Arc::clone(&presence);
            async move { presence.limited().await }
        });
        tokio::task::yield_now().await;
        assert!(presence.leaves());
        told.await.expect("told");
    }
}
