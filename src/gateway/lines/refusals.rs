//! The places at providers that get requests by POST for a while, because they have refused a WebSocket or a message on one.

use std::{
    collections::HashMap,
    net::SocketAddr,
    time::{Duration, Instant},
};

use parking_lot::Mutex;

/// The time for which requests go by POST after a refusal.
const POST_FOR: Duration = Duration::from_secs(600);

/// The maximum number of places that are remembered. Further ones are asked for a WebSocket by each request.
const PLACES_MAX: usize = 1024;

/// A place at a provider that serves WebSockets.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct LinePlace {
    /// The address of the backend.
    pub address: SocketAddr,
    /// The host in the provider's URL.
    pub host: String,
}

/// The requests that go by POST to a place.
#[derive(Clone, Copy, Debug)]
struct PostOnly {
    /// The length in bytes from which bodies go by POST; 0 for all bodies.
    bytes_min: usize,
    until: Instant,
}

/// The places of this node that have refused a WebSocket or a message. All sockets share them.
#[derive(Debug, Default)]
pub(crate) struct LineRefusals {
    places: Mutex<HashMap<LinePlace, PostOnly>>,
}

impl LineRefusals {
    /// Whether a request with a body of `bytes` bytes can go to a place over a WebSocket.
    pub(crate) fn admits(&self, place: &LinePlace, bytes: usize, now: Instant) -> bool {
        let places = self.places.lock();
        let refused = places.get(place).filter(|refused| refused.until > now);
        refused.is_none_or(|refused| bytes < refused.bytes_min)
    }

    /// Sends requests with bodies of at least `bytes_min` bytes to this place by POST for a while.
    pub(super) fn add(&self, place: &LinePlace, bytes_min: usize, now: Instant) {
        let mut places = self.places.lock();
        places.retain(|_, refused| refused.until > now);
        if places.len() >= PLACES_MAX && !places.contains_key(place) {
            return;
        }
        let known = places.get(place).map_or(usize::MAX, |refused| refused.bytes_min);
        let refused = PostOnly {
            bytes_min: bytes_min.min(known),
            until: now + POST_FOR,
        };
        places.insert(place.clone(), refused);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::edges::clock;

    fn place(host: &str) -> LinePlace {
        LinePlace {
            address: "127.0.0.1:443".parse().expect("an address"),
            host: host.to_owned(),
        }
    }

    #[test]
    fn a_place_gets_posts_for_ten_minutes_after_it_has_refused_a_handshake() {
        let (refusals, now) = (LineRefusals::default(), clock::instant());
        assert!(refusals.admits(&place("a"), 1, now));
        refusals.add(&place("a"), 0, now);
        assert!(!refusals.admits(&place("a"), 1, now) && refusals.admits(&place("b"), 1, now));
        let before = now + POST_FOR - Duration::from_millis(1);
        assert!(!refusals.admits(&place("a"), 0, before) && refusals.admits(&place("a"), 0, now + POST_FOR));
    }

    #[test]
    fn a_place_that_has_refused_a_large_message_gets_smaller_ones() {
        let (refusals, now) = (LineRefusals::default(), clock::instant());
        refusals.add(&place("a"), 100, now);
        assert!(refusals.admits(&place("a"), 99, now) && !refusals.admits(&place("a"), 100, now));
        refusals.add(&place("a"), 200, now);
        assert!(!refusals.admits(&place("a"), 100, now));
    }

    #[test]
    fn the_number_of_places_is_limited() {
        let (refusals, now) = (LineRefusals::default(), clock::instant());
        for number in 0..=PLACES_MAX {
            refusals.add(&place(&number.to_string()), 0, now);
        }
        assert!(!refusals.admits(&place("0"), 0, now));
        assert!(refusals.admits(&place(&PLACES_MAX.to_string()), 0, now));
        refusals.add(&place("new"), 0, now + POST_FOR);
        assert!(!refusals.admits(&place("new"), 0, now + POST_FOR));
    }
}
