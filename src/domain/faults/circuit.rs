//! A circuit breaker with a slow start, for something that can fail: an address, a credential, a model at a provider.
//! It has no clock: time is an argument.
//!
//! Closed, it admits every request. After [`EJECTED_AFTER`] failures in a row it opens for [`EJECTED_FIRST`], twice as
//! long each further time, at most [`EJECTED_MAX`]. Then it is half-open: one request probes, the others go elsewhere.
//! Each success admits one more request at a time, a failure opens it again, and after [`READMITTED_AFTER`] successes
//! it closes. It also closes when nobody has asked for [`FORGOTTEN_AFTER`], because so old a failure says nothing about
//! today.

use std::time::{Duration, Instant};

/// Failures in a row that open the circuit.
pub(crate) const EJECTED_AFTER: u32 = 3;
/// How long it opens the first time; doubled each further time.
pub(crate) const EJECTED_FIRST: Duration = Duration::from_secs(5);
/// How long it opens at most, except by a longer rest.
pub(crate) const EJECTED_MAX: Duration = Duration::from_secs(300);
/// Successes that close a half-open circuit.
pub(crate) const READMITTED_AFTER: u32 = 8;
/// How long after its opening has ended an unused circuit closes.
pub(crate) const FORGOTTEN_AFTER: Duration = Duration::from_secs(300);

/// The state of one circuit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Circuit {
    state: CircuitState,
    /// How often it was opened for failures since it was last closed.
    ejections: u32,
    /// How often it was opened. Results of an earlier round are ignored.
    round: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CircuitState {
    Closed {
        failures: u32,
    },
    Open {
        until: Instant,
    },
    HalfOpen {
        since: Instant,
        succeeded: u32,
        running: u32,
    },
}

impl Default for CircuitState {
    fn default() -> Self {
        Self::Closed { failures: 0 }
    }
}

/// How a request was admitted; returned with its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CircuitEntry {
    /// Through a closed circuit.
    Closed,
    /// As a probe of a half-open circuit.
    Probe {
        /// The circuit's round at that time.
        round: u64,
    },
    /// Although the circuit was open, because there was nothing else to ask.
    LastResort {
        /// The circuit's round at that time.
        round: u64,
    },
}

impl Circuit {
    /// Whether every request is admitted.
    pub(crate) fn is_closed(&self, now: Instant) -> bool {
        match self.state {
            CircuitState::Closed { .. } => true,
            CircuitState::Open { until: since } | CircuitState::HalfOpen { since, running: 0, .. } => {
                now >= since + FORGOTTEN_AFTER
            }
            CircuitState::HalfOpen { .. } => false,
        }
    }

    /// Until when no request is admitted; `None` if the circuit is not open.
    pub(crate) fn open_until(&self, now: Instant) -> Option<Instant> {
        match self.state {
            CircuitState::Open { until } if until > now => Some(until),
            CircuitState::Closed { .. } | CircuitState::Open { .. } | CircuitState::HalfOpen { .. } => None,
        }
    }

    /// Whether [`Circuit::enter`] would admit a request.
    pub(crate) fn admits(&self, now: Instant) -> bool {
        match self.state {
            CircuitState::Closed { .. } => true,
            CircuitState::Open { until } => until <= now,
            CircuitState::HalfOpen { succeeded, running, .. } => running <= succeeded || self.is_closed(now),
        }
    }

    /// Admits a request, or returns `None`: it should go elsewhere.
    pub(crate) fn enter(&mut self, now: Instant) -> Option<CircuitEntry> {
        if !self.admits(now) {
            return None;
        }
        self.forget(now);
        match &mut self.state {
            CircuitState::Closed { .. } => return Some(CircuitEntry::Closed),
            CircuitState::HalfOpen { running, .. } => *running += 1,
            state @ CircuitState::Open { .. } => {
                *state = CircuitState::HalfOpen {
                    since: now,
                    succeeded: 0,
                    running: 1,
                }
            }
        }
        Some(CircuitEntry::Probe { round: self.round })
    }

    /// Admits a request that the circuit would not admit.
    pub(crate) fn enter_anyway(&mut self, now: Instant) -> CircuitEntry {
        self.forget(now);
        match self.state {
            CircuitState::Closed { .. } => CircuitEntry::Closed,
            CircuitState::Open { .. } | CircuitState::HalfOpen { .. } => CircuitEntry::LastResort { round: self.round },
        }
    }

    fn forget(&mut self, now: Instant) {
        if !matches!(self.state, CircuitState::Closed { .. }) && self.is_closed(now) {
            self.state = CircuitState::default();
            self.ejections = 0;
        }
    }

    /// It worked for a request. True when that has closed it.
    pub(crate) fn worked(&mut self, entry: CircuitEntry, now: Instant) -> bool {
        self.leave(entry);
        match (&mut self.state, entry) {
            (CircuitState::Closed { failures }, _) => *failures = 0,
            (_, CircuitEntry::Closed) => {}
            (_, CircuitEntry::Probe { round } | CircuitEntry::LastResort { round }) if round != self.round => {}
            (state @ CircuitState::Open { .. }, _) => {
                *state = CircuitState::HalfOpen {
                    since: now,
                    succeeded: 1,
                    running: 0,
                }
            }
            (CircuitState::HalfOpen { succeeded, .. }, _) => {
                *succeeded += 1;
                if *succeeded >= READMITTED_AFTER {
                    self.state = CircuitState::default();
                    self.ejections = 0;
                    return true;
                }
            }
        }
        false
    }

    /// It failed a request. True when that has opened it.
    pub(crate) fn failed(&mut self, entry: CircuitEntry, now: Instant) -> bool {
        match (&mut self.state, entry) {
            (CircuitState::Closed { failures }, _) => {
                *failures += 1;
                if *failures < EJECTED_AFTER {
                    return false;
                }
            }
            (CircuitState::HalfOpen { .. }, CircuitEntry::Probe { round } | CircuitEntry::LastResort { round })
                if round == self.round => {}
            // Known already, or said of a time that is over.
            (CircuitState::Open { .. } | CircuitState::HalfOpen { .. }, _) => return false,
        }
        let doubled = EJECTED_FIRST.saturating_mul(1 << self.ejections.min(16));
        self.ejections += 1;
        self.open(now + doubled.min(EJECTED_MAX));
        true
    }

    /// A request ended without a word on whether it works.
    pub(crate) fn leave(&mut self, entry: CircuitEntry) {
        if let (CircuitState::HalfOpen { running, .. }, CircuitEntry::Probe { round }) = (&mut self.state, entry)
            && round == self.round
        {
            *running = running.saturating_sub(1);
        }
    }

    /// Nobody is to ask for so long, unless that was longer already.
    pub(crate) fn rest(&mut self, pause: Duration, now: Instant) {
        let until = now + pause;
        match &mut self.state {
            CircuitState::Open { until: known } => *known = until.max(*known),
            CircuitState::Closed { .. } | CircuitState::HalfOpen { .. } => self.open(until),
        }
    }

    fn open(&mut self, until: Instant) {
        self.round += 1;
        self.state = CircuitState::Open { until };
    }
}

#[cfg(test)]
mod tests;
