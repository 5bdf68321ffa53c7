//! A circuit breaker that requests share, and the permit that each request holds and returns, however it ends.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::Mutex;

use crate::domain::faults::circuit::{Circuit, CircuitEntry};

/// A circuit that requests share. Clones are the same circuit. Each request holds a permit of it, which is returned however the
/// request ends.
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

/// One request's permission to pass the circuit, until its result is reported or the permit is dropped.
#[derive(Debug)]
pub(crate) struct CircuitPermit {
    breaker: Breaker,
    entry: Option<CircuitEntry>,
}

impl Breaker {
    /// A permit if the circuit admits the request; otherwise the request should go elsewhere.
    pub(crate) fn enter(&self, probing: Probing, now: Instant) -> Option<CircuitPermit> {
        let mut circuit = self.0.lock();
        if probing == Probing::Never && !circuit.is_closed(now) {
            return None;
        }
        let entry = circuit.enter(now)?;
        drop(circuit);
        Some(self.permit(entry))
    }

    /// A permit for a request that cannot go elsewhere.
    pub(crate) fn force_enter(&self, now: Instant) -> CircuitPermit {
        let entry = self.0.lock().force_enter(now);
        self.permit(entry)
    }

    /// Whether [`Breaker::enter`] would return a permit.
    pub(crate) fn admits(&self, probing: Probing, now: Instant) -> bool {
        let circuit = self.0.lock();
        circuit.is_closed(now) || probing == Probing::Allowed && circuit.admits(now)
    }

    /// The time until which the circuit is open; `None` if it is not.
    pub(crate) fn open_until(&self, now: Instant) -> Option<Instant> {
        self.0.lock().open_until(now)
    }

    /// Opens the circuit for a time; see [`Circuit::rest`].
    pub(crate) fn open_for(&self, pause: Duration, now: Instant) {
        self.0.lock().cool_down(pause, now);
    }

    fn permit(&self, entry: CircuitEntry) -> CircuitPermit {
        CircuitPermit {
            breaker: self.clone(),
            entry: Some(entry),
        }
    }
}

impl CircuitPermit {
    /// Reports a success. Returns true if it has closed the circuit.
    pub(crate) fn report_success(mut self, now: Instant) -> bool {
        let entry = self.entry.take();
        entry.is_some_and(|entry| self.breaker.0.lock().on_success(entry, now))
    }

    /// Reports a failure. Returns true if it has opened the circuit.
    pub(crate) fn report_failure(mut self, now: Instant) -> bool {
        let entry = self.entry.take();
        entry.is_some_and(|entry| self.breaker.0.lock().on_failure(entry, now))
    }

    /// Whether the circuit is closed, so that all requests may pass.
    pub(crate) fn is_closed(&self, now: Instant) -> bool {
        self.breaker.0.lock().is_closed(now)
    }
}

impl Drop for CircuitPermit {
    fn drop(&mut self) {
        if let Some(entry) = self.entry.take() {
            self.breaker.0.lock().on_no_result(entry);
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
            assert_eq!(breaker.force_enter(now).report_failure(now), number == EJECTED_AFTER);
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
        breaker.open_for(Duration::ZERO, now);
        let permits: Vec<Option<CircuitPermit>> = std::thread::scope(|scope| {
            let asking: Vec<_> = (0..16)
                .map(|_| scope.spawn(|| breaker.enter(Probing::Allowed, now)))
                .collect();
            asking.into_iter().map(|one| one.join().unwrap()).collect()
        });
        assert_eq!(permits.iter().flatten().count(), 1);
    }
}
