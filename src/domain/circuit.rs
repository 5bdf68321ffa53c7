//! What is remembered of something that can fail (an address, a credential, a model at a provider), and who may ask it
//! again: a circuit breaker with a slow start. No clock: time is an argument.
//!
//! Closed, everybody may. After [`EJECTED_AFTER`] failures in a row it is open: it is passed over for [`EJECTED_FIRST`], twice
//! as long with each time in a row, at most [`EJECTED_MAX`]. Then it is half-open: one request asks, the others go elsewhere.
//! Each success lets one more ask at a time, a failure opens it again, and after [`READMITTED_AFTER`] successes it is closed.
//! So it is when nobody has asked for [`FORGOTTEN_AFTER`]: what failed so long ago says nothing of today.

use std::time::{Duration, Instant};

/// Failures in a row after which it is passed over.
pub const EJECTED_AFTER: u32 = 3;
/// How long it is passed over the first time; doubled with each time in a row.
pub const EJECTED_FIRST: Duration = Duration::from_secs(5);
/// How long it is passed over at most, unless it was told to rest for longer.
pub const EJECTED_MAX: Duration = Duration::from_secs(300);
/// Successes after which one that was passed over is asked by everybody again.
pub const READMITTED_AFTER: u32 = 8;
/// How long after its time was over one that nobody has asked counts as any other.
pub const FORGOTTEN_AFTER: Duration = Duration::from_secs(300);

/// One thing that can fail.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Circuit {
    state: State,
    /// How often it was opened for failures since it was last closed.
    ejections: u32,
    /// Counts how often it was opened: what was sent in an earlier round says nothing of this one.
    round: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
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

impl Default for State {
    fn default() -> Self {
        Self::Closed { failures: 0 }
    }
}

/// As what a request asks; to be given back with the request's result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// One of all.
    Usual,
    /// One of the few that find out whether it works again.
    Probe {
        /// Of which round.
        round: u64,
    },
    /// It was passed over, but there was nothing else to ask.
    LastResort {
        /// Of which round.
        round: u64,
    },
}

impl Circuit {
    /// Whether everybody may ask.
    pub fn is_closed(&self, now: Instant) -> bool {
        match self.state {
            State::Closed { .. } => true,
            State::Open { until: since } | State::HalfOpen { since, running: 0, .. } => now >= since + FORGOTTEN_AFTER,
            State::HalfOpen { .. } => false,
        }
    }

    /// Until when nobody is to ask, if so.
    pub fn open_until(&self, now: Instant) -> Option<Instant> {
        match self.state {
            State::Open { until } if until > now => Some(until),
            State::Closed { .. } | State::Open { .. } | State::HalfOpen { .. } => None,
        }
    }

    /// Whether [`Circuit::enter`] would let a request in.
    pub fn admits(&self, now: Instant) -> bool {
        match self.state {
            State::Closed { .. } => true,
            State::Open { until } => until <= now,
            State::HalfOpen { succeeded, running, .. } => running <= succeeded || self.is_closed(now),
        }
    }

    /// A request wants to ask; `None`: it is to go elsewhere.
    pub fn enter(&mut self, now: Instant) -> Option<Entry> {
        if !self.admits(now) {
            return None;
        }
        self.forget(now);
        match &mut self.state {
            State::Closed { .. } => return Some(Entry::Usual),
            State::HalfOpen { running, .. } => *running += 1,
            state @ State::Open { .. } => {
                *state = State::HalfOpen {
                    since: now,
                    succeeded: 0,
                    running: 1,
                }
            }
        }
        Some(Entry::Probe { round: self.round })
    }

    /// A request asks although it was not let in.
    pub fn enter_anyway(&mut self, now: Instant) -> Entry {
        self.forget(now);
        match self.state {
            State::Closed { .. } => Entry::Usual,
            State::Open { .. } | State::HalfOpen { .. } => Entry::LastResort { round: self.round },
        }
    }

    fn forget(&mut self, now: Instant) {
        if !matches!(self.state, State::Closed { .. }) && self.is_closed(now) {
            self.state = State::default();
            self.ejections = 0;
        }
    }

    /// It worked for a request. True when that has closed it.
    pub fn worked(&mut self, entry: Entry, now: Instant) -> bool {
        self.leave(entry);
        match (&mut self.state, entry) {
            (State::Closed { failures }, _) => *failures = 0,
            (_, Entry::Usual) => {}
            (_, Entry::Probe { round } | Entry::LastResort { round }) if round != self.round => {}
            (state @ State::Open { .. }, _) => {
                *state = State::HalfOpen {
                    since: now,
                    succeeded: 1,
                    running: 0,
                }
            }
            (State::HalfOpen { succeeded, .. }, _) => {
                *succeeded += 1;
                if *succeeded >= READMITTED_AFTER {
                    self.state = State::default();
                    self.ejections = 0;
                    return true;
                }
            }
        }
        false
    }

    /// It failed a request. True when that has opened it.
    pub fn failed(&mut self, entry: Entry, now: Instant) -> bool {
        match (&mut self.state, entry) {
            (State::Closed { failures }, _) => {
                *failures += 1;
                if *failures < EJECTED_AFTER {
                    return false;
                }
            }
            (State::HalfOpen { .. }, Entry::Probe { round } | Entry::LastResort { round }) if round == self.round => {}
            // Known already, or said of a time that is over.
            (State::Open { .. } | State::HalfOpen { .. }, _) => return false,
        }
        let doubled = EJECTED_FIRST.saturating_mul(1 << self.ejections.min(16));
        self.ejections += 1;
        self.open(now + doubled.min(EJECTED_MAX));
        true
    }

    /// A request ended without a word on whether it works.
    pub fn leave(&mut self, entry: Entry) {
        if let (State::HalfOpen { running, .. }, Entry::Probe { round }) = (&mut self.state, entry)
            && round == self.round
        {
            *running = running.saturating_sub(1);
        }
    }

    /// Nobody is to ask for so long, unless that was longer already.
    pub fn rest(&mut self, pause: Duration, now: Instant) {
        let until = now + pause;
        match &mut self.state {
            State::Open { until: known } => *known = until.max(*known),
            State::Closed { .. } | State::HalfOpen { .. } => self.open(until),
        }
    }

    fn open(&mut self, until: Instant) {
        self.round += 1;
        self.state = State::Open { until };
    }
}

#[cfg(test)]
mod tests;
