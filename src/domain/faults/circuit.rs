//! A circuit breaker with a slow start, for a backend, a credential or a model of a provider. It has no clock: the caller passes
//! the time.
//!
//! A closed circuit admits every request. After [`EJECTED_AFTER`] consecutive failures, it opens for [`EJECTED_FIRST`]. If it
//! opens again before it has closed, it stays open for twice as long as before, up to [`EJECTED_MAX`]. When this time is over,
//! the circuit is half-open: it admits one request as a probe, and the caller sends other requests elsewhere. After each success,
//! it admits one more concurrent request. A failure opens the circuit again, and [`READMITTED_AFTER`] successes close it. A
//! circuit also closes when it was not used for [`FORGOTTEN_AFTER`], because such an old failure is no longer relevant.

use std::time::{Duration, Instant};

/// The number of consecutive failures that open a closed circuit.
pub(crate) const EJECTED_AFTER: u32 = 3;
/// The time for which the circuit stays open when it opens for the first time. The time doubles each time the circuit opens again
/// before it has closed.
pub(crate) const EJECTED_FIRST: Duration = Duration::from_secs(5);
/// The maximum time for which the circuit stays open because of failures. A cooldown may keep it open for longer.
pub(crate) const EJECTED_MAX: Duration = Duration::from_secs(300);
/// The number of successes that close a half-open circuit.
pub(crate) const READMITTED_AFTER: u32 = 8;
/// The time after which an unused circuit closes, counted from the end of its open time.
pub(crate) const FORGOTTEN_AFTER: Duration = Duration::from_secs(300);

/// The state of the circuit of one backend, credential or model.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Circuit {
    state: CircuitState,
    /// The number of times that failures have opened the circuit since it was last closed.
    ejections: u32,
    /// The number of times that the circuit was opened. The result of a request is ignored if the circuit was opened after its
    /// admission.
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

/// The state in which a circuit admitted a request. The caller passes this value back with the request's result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CircuitEntry {
    /// The circuit was closed.
    Closed,
    /// The circuit was half-open, and the request is a probe.
    Probe {
        /// The circuit's round at the request's admission.
        round: u64,
    },
    /// The circuit was not closed. It admitted the request because no alternative was available.
    LastResort {
        /// The circuit's round at the request's admission.
        round: u64,
    },
}

impl Circuit {
    /// Whether the circuit admits every request.
    pub(crate) fn is_closed(&self, now: Instant) -> bool {
        match self.state {
            CircuitState::Closed { .. } => true,
            CircuitState::Open { until: since } | CircuitState::HalfOpen { since, running: 0, .. } => {
                now >= since + FORGOTTEN_AFTER
            }
            CircuitState::HalfOpen { .. } => false,
        }
    }

    /// Returns the time until which the circuit admits no request. `None` if the circuit is not open.
    pub(crate) fn open_until(&self, now: Instant) -> Option<Instant> {
        match self.state {
            CircuitState::Open { until } if until > now => Some(until),
            CircuitState::Closed { .. } | CircuitState::Open { .. } | CircuitState::HalfOpen { .. } => None,
        }
    }

    /// Whether [`Circuit::enter`] would admit a request at `now`.
    pub(crate) fn admits(&self, now: Instant) -> bool {
        match self.state {
            CircuitState::Closed { .. } => true,
            CircuitState::Open { until } => until <= now,
            CircuitState::HalfOpen { succeeded, running, .. } => running <= succeeded || self.is_closed(now),
        }
    }

    /// Admits a request; `None` if the request must be sent elsewhere.
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

    /// Admits a request in any state of the circuit.
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

    /// Records that a request succeeded. Returns whether this success closed the circuit.
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

    /// Records that a request failed. Returns whether this failure opened the circuit.
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
            // The circuit is already open, or the request was admitted in an earlier round.
            (CircuitState::Open { .. } | CircuitState::HalfOpen { .. }, _) => return false,
        }
        let doubled = EJECTED_FIRST.saturating_mul(1 << self.ejections.min(16));
        self.ejections += 1;
        self.open(now + doubled.min(EJECTED_MAX));
        true
    }

    /// Records that a request ended without success or failure.
    pub(crate) fn on_no_result(&mut self, entry: CircuitEntry) {
        if let (CircuitState::HalfOpen { running, .. }, CircuitEntry::Probe { round }) = (&mut self.state, entry)
            && round == self.round
        {
            *running = running.saturating_sub(1);
        }
    }

    /// Opens the circuit for at least the duration `pause`, which begins at `now`.
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
