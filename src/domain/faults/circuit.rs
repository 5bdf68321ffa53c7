//! A circuit breaker with a slow start, for a backend, a credential or a model of a provider. It has no clock: time is an
//! argument.
//!
//! A closed circuit admits every request. After [`EJECTED_AFTER`] failures in a row it opens for [`EJECTED_FIRST`], and for
//! twice as long each further time, up to [`EJECTED_MAX`]. Then it is half-open: it admits one request as a probe, and the
//! others go elsewhere. Each success raises the number of concurrent requests by one, a failure opens the circuit again, and
//! [`READMITTED_AFTER`] successes close it. It also closes when it has not been used for [`FORGOTTEN_AFTER`], because such an
//! old failure says nothing about the present.

use std::time::{Duration, Instant};

/// Failures in a row that open the circuit.
pub(crate) const EJECTED_AFTER: u32 = 3;
/// How long the circuit opens the first time; doubled each further time.
pub(crate) const EJECTED_FIRST: Duration = Duration::from_secs(5);
/// Maximum time the circuit opens, except by a longer cooldown.
pub(crate) const EJECTED_MAX: Duration = Duration::from_secs(300);
/// Successes that close a half-open circuit.
pub(crate) const READMITTED_AFTER: u32 = 8;
/// An unused circuit closes this long after its open time has ended.
pub(crate) const FORGOTTEN_AFTER: Duration = Duration::from_secs(300);

/// The state of one circuit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Circuit {
    state: CircuitState,
    /// How many times it was opened by failures since it was last closed.
    ejections: u32,
    /// How many times it was opened. Results of an earlier round are ignored.
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

/// How a request was admitted. The caller hands it back with the request's result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CircuitEntry {
    /// Through a closed circuit.
    Closed,
    /// As a probe of a half-open circuit.
    Probe {
        /// The circuit's round at the time.
        round: u64,
    },
    /// Although the circuit was not closed, because there was no alternative.
    LastResort {
        /// The circuit's round at the time.
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

    /// The time until which no request is admitted; `None` if the circuit is not open.
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

    /// Admits a request; `None` if it should go elsewhere.
    pub(crate) fn enter(&mut self, now: Instant) -> Option<CircuitEntry> {
        if !self.admits(now) {
            return None;
        }
        self.close_if_forgotten(now);
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

    /// Admits a request regardless of the circuit's state.
    pub(crate) fn force_enter(&mut self, now: Instant) -> CircuitEntry {
        self.close_if_forgotten(now);
        match self.state {
            CircuitState::Closed { .. } => CircuitEntry::Closed,
            CircuitState::Open { .. } | CircuitState::HalfOpen { .. } => CircuitEntry::LastResort { round: self.round },
        }
    }

    fn close_if_forgotten(&mut self, now: Instant) {
        if !matches!(self.state, CircuitState::Closed { .. }) && self.is_closed(now) {
            self.state = CircuitState::default();
            self.ejections = 0;
        }
    }

    /// Records a success. Returns whether it closed the circuit.
    pub(crate) fn on_success(&mut self, entry: CircuitEntry, now: Instant) -> bool {
        self.on_no_result(entry);
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

    /// Records a failure. Returns whether it opened the circuit.
    pub(crate) fn on_failure(&mut self, entry: CircuitEntry, now: Instant) -> bool {
        match (&mut self.state, entry) {
            (CircuitState::Closed { failures }, _) => {
                *failures += 1;
                if *failures < EJECTED_AFTER {
                    return false;
                }
            }
            (CircuitState::HalfOpen { .. }, CircuitEntry::Probe { round } | CircuitEntry::LastResort { round })
                if round == self.round => {}
            // The failure is known already, or belongs to an earlier round.
            (CircuitState::Open { .. } | CircuitState::HalfOpen { .. }, _) => return false,
        }
        let doubled = EJECTED_FIRST.saturating_mul(1 << self.ejections.min(16));
        self.ejections += 1;
        self.open(now + doubled.min(EJECTED_MAX));
        true
    }

    /// Records that a request ended without a result.
    pub(crate) fn on_no_result(&mut self, entry: CircuitEntry) {
        if let (CircuitState::HalfOpen { running, .. }, CircuitEntry::Probe { round }) = (&mut self.state, entry)
            && round == self.round
        {
            *running = running.saturating_sub(1);
        }
    }

    /// Keeps the circuit open for at least `pause` from `now`.
    pub(crate) fn cool_down(&mut self, pause: Duration, now: Instant) {
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
