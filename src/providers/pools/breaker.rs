//! A circuit breaker that requests share, and the permit that each request holds. However the request ends, the permit
//! is returned.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::Mutex;

use crate::domain::faults::circuit::{Circuit, CircuitEntry};

/// A shared circuit. Clones are the same circuit.
#[derive(Clone, Debug, Default)]
pub(crate) struct Breaker(Arc<Mutex<Circuit>>);

/// Whether a request may serve as a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Probing {
    /// Yes: it can be sent elsewhere if the probe fails.
    Allowed,
    /// No: a failed probe would lose it.
    Never,
}

/// One request's right to ask, until its result is reported or the permit is dropped.
#[derive(Debug)]
pub(crate) struct Permit {
    breaker: Breaker,
    entry: Option<CircuitEntry>,
}

impl Breaker {
    /// A permit, if the circuit lets the request through; otherwise it should go elsewhere.
    pub(crate) fn enter(&self, probing: Probing, now: Instant) -> Option<Permit> {
        let mut circuit = self.0.lock();
        if probing == Probing::Never && !circuit.is_closed(now) {
            return None;
        }
        let entry = circuit.enter(now)?;
        drop(circuit);
        Some(self.permit(entry))
    }

    /// A permit for a request that cannot go elsewhere.
    pub(crate) fn enter_anyway(&self, now: Instant) -> Permit {
        let entry = self.0.lock().enter_anyway(now);
        self.permit(entry)
    }

    /// Whether [`Breaker::enter`] would return a permit.
    pub(crate) fn admits(&self, probing: Probing, now: Instant) -> bool {
        let circuit = self.0.lock();
        circuit.is_closed(now) || probing == Probing::Allowed && circuit.admits(now)
    }

    /// Until when the circuit is open; `None` if it is not.
    pub(crate) fn open_until(&self, now: Instant) -> Option<Instant> {
        self.0.lock().open_until(now)
    }

    /// Opens the circuit for a time; see [`Circuit::rest`].
    pub(crate) fn rest(&self, pause: Duration, now: Instant) {
        self.0.lock().rest(pause, now);
    }

    fn permit(&self, entry: CircuitEntry) -> Permit {
        Permit {
            breaker: self.clone(),
            entry: Some(entry),
        }
    }
}

impl Permit {
    /// Reports a success. Returns true if it has closed the circuit.
    pub(crate) fn worked(mut self, now: Instant) -> bool {
        let entry = self.entry.take();
        entry.is_some_and(|entry| self.breaker.0.lock().worked(entry, now))
    }

    /// Reports a failure. Returns true if it has opened the circuit.
    pub(crate) fn failed(mut self, now: Instant) -> bool {
        let entry = self.entry.take();
        entry.is_some_and(|entry| self.breaker.0.lock().failed(entry, now))
    }

    /// Whether the circuit is closed, so that all requests may ask.
    pub(crate) fn is_closed(&self, now: Instant) -> bool {
        self.breaker.0.lock().is_closed(now)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some(entry) = self.entry.take() {
            self.breaker.0.lock().leave(entry);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        domain::faults::circuit::{EJECTED_AFTER, EJECTED_FIRST},
        edges::clock,
    };

    #[test]
    fn a_request_that_is_dropped_gives_its_probe_back() {
        let (breaker, now) = (Breaker::default(), clock::instant());
        for number in 1..=EJECTED_AFTER {
            assert_eq!(breaker.enter_anyway(now).failed(now), number == EJECTED_AFTER);
        }
        assert!(breaker.enter(Probing::Allowed, now).is_none());
        let now = now + EJECTED_FIRST;
        assert!(breaker.enter(Probing::Never, now).is_none() && !breaker.admits(Probing::Never, now));
        let probe = breaker.enter(Probing::Allowed, now).unwrap();
        assert!(breaker.enter(Probing::Allowed, now).is_none());
        drop(probe);
        assert!(breaker.enter(Probing::Allowed, now).is_some());
    }

    #[test]
    fn of_many_that_ask_at_once_one_probes() {
        let breaker = Breaker::default();
        let now = clock::instant();
        breaker.rest(Duration::ZERO, now);
        let permits: Vec<Option<Permit>> = std::thread::scope(|scope| {
            let asking: Vec<_> = (0..16)
                .map(|_| scope.spawn(|| breaker.enter(Probing::Allowed, now)))
                .collect();
            asking.into_iter().map(|one| one.join().unwrap()).collect()
        });
        assert_eq!(permits.iter().flatten().count(), 1);
    }
}
