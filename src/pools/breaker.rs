//! A circuit that requests share, and the permit of each that asks through it: whatever ends the request, the permit is given
//! back.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use crate::domain::circuit::{Circuit, Entry};

/// A shared circuit.
#[derive(Clone, Debug, Default)]
pub struct Breaker(Arc<Mutex<Circuit>>);

/// Which requests a probe may be made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Probing {
    /// The request can be sent elsewhere when the probe fails.
    Allowed,
    /// It would be lost.
    Never,
}

/// The right of one request to ask, until its result is told or it is dropped.
#[derive(Debug)]
pub struct Permit {
    breaker: Breaker,
    entry: Option<Entry>,
}

impl Breaker {
    /// A permit, if the request may ask; otherwise it is to go elsewhere.
    pub fn enter(&self, probing: Probing, now: Instant) -> Option<Permit> {
        let mut circuit = self.lock();
        if probing == Probing::Never && !circuit.is_closed(now) {
            return None;
        }
        let entry = circuit.enter(now)?;
        drop(circuit);
        Some(self.permit(entry))
    }

    /// A permit for a request that has nowhere else to go, or may go nowhere else.
    pub fn enter_anyway(&self, now: Instant) -> Permit {
        let entry = self.lock().enter_anyway(now);
        self.permit(entry)
    }

    /// Whether [`Breaker::enter`] would give a permit.
    pub fn admits(&self, probing: Probing, now: Instant) -> bool {
        let circuit = self.lock();
        circuit.is_closed(now) || probing == Probing::Allowed && circuit.admits(now)
    }

    /// Until when it is passed over, if it is.
    pub fn open_until(&self, now: Instant) -> Option<Instant> {
        self.lock().open_until(now)
    }

    /// See [`Circuit::rest`].
    pub fn rest(&self, pause: Duration, now: Instant) {
        self.lock().rest(pause, now);
    }

    fn permit(&self, entry: Entry) -> Permit {
        Permit {
            breaker: self.clone(),
            entry: Some(entry),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Circuit> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Permit {
    /// It worked. True when everybody may ask again by that.
    pub fn worked(mut self, now: Instant) -> bool {
        let entry = self.entry.take();
        entry.is_some_and(|entry| self.breaker.lock().worked(entry, now))
    }

    /// It failed. True when it is passed over from now on.
    pub fn failed(mut self, now: Instant) -> bool {
        let entry = self.entry.take();
        entry.is_some_and(|entry| self.breaker.lock().failed(entry, now))
    }

    /// Whether what is asked is trusted by everybody.
    pub fn is_closed(&self, now: Instant) -> bool {
        self.breaker.lock().is_closed(now)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some(entry) = self.entry.take() {
            self.breaker.lock().leave(entry);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        clock,
        domain::circuit::{EJECTED_AFTER, EJECTED_FIRST},
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
