//! Rate limits per client by the generic cell rate algorithm (ITU-T I.371): a token bucket kept as one time per client.
//! In integers, so nothing is lost by rounding.

pub(crate) mod client;

use std::{
    hash::{Hash, RandomState},
    time::{Duration, Instant},
};

use lru::LruCache;
use parking_lot::Mutex;

#[cfg(test)]
mod tests;

const MINUTE_NANOS: u128 = 60_000_000_000;
/// The most idle clients that one request removes, so that memory shrinks as gradually as it grew.
const SWEPT_MAX: usize = 2;

/// A rate limit, and how many clients it is kept for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Allowance {
    /// Events per minute and client in the long run; at least 1.
    pub per_minute: u32,
    /// Events of one client at once after a rest; at least 1.
    pub burst: u32,
    /// The most clients remembered; at least 1.
    pub clients_max: usize,
}

/// Counts per client. Times are kept in nanoseconds since `start`, times the count per minute: one of what is counted then
/// is worth exactly `MINUTE_NANOS` of them. A limit that all share has one client, `()`.
#[derive(Debug)]
pub(crate) struct Limiter<C: Hash + Eq> {
    start: Instant,
    per_minute: u128,
    /// How far a client may be ahead of its rate.
    ahead: u128,
    clients_max: usize,
    /// Until when what each client has done so far would last at its rate, who asked last in front. Sip hashing: the
    /// addresses are chosen by strangers.
    clients: Mutex<Clients<C>>,
}

impl<C: Copy + Hash + Eq> Limiter<C> {
    /// Starts without any event. `start` is a time before the first use.
    pub(crate) fn new(allowance: Allowance, start: Instant) -> Self {
        let burst = u128::from(allowance.burst.max(1));
        Self {
            start,
            per_minute: u128::from(allowance.per_minute.max(1)),
            ahead: (burst - 1) * MINUTE_NANOS,
            clients_max: allowance.clients_max.max(1),
            // Grows with the number of clients, not to the limit at once.
            clients: Mutex::new(LruCache::unbounded_with_hasher(RandomState::new())),
        }
    }

    /// Admits and counts an event of a client.
    ///
    /// # Errors
    /// The limit is reached; the time until the event would be admitted. A refused event is not counted.
    pub(crate) fn try_acquire(&self, client: C, now: Instant) -> Result<(), Duration> {
        let now = self.at(now);
        let mut clients = self.clients.lock();
        let until = self.allowed(&mut clients, client, now)?;
        self.keep(&mut clients, client, until, now);
        Ok(())
    }

    /// Whether an event of a client would be admitted, without counting it.
    ///
    /// # Errors
    /// As for [`Limiter::try_acquire`].
    pub(crate) fn check(&self, client: C, now: Instant) -> Result<(), Duration> {
        self.allowed(&mut self.clients.lock(), client, self.at(now)).map(drop)
    }

    /// Counts an event of a client, even beyond its limit; it then waits longer.
    pub(crate) fn count(&self, client: C, now: Instant) {
        let now = self.at(now);
        let mut clients = self.clients.lock();
        let until = until(&mut clients, &client, now);
        self.keep(&mut clients, client, until, now);
    }

    /// Until when what it has done lasts, if it may do more.
    fn allowed(&self, clients: &mut Clients<C>, client: C, now: u128) -> Result<u128, Duration> {
        let until = until(clients, &client, now);
        match (until - now).saturating_sub(self.ahead) {
            0 => Ok(until),
            early => Err(nanos(early.div_ceil(self.per_minute))),
        }
    }

    fn keep(&self, clients: &mut Clients<C>, client: C, until: u128, now: u128) {
        clients.put(client, until + MINUTE_NANOS);
        for _ in 0..SWEPT_MAX {
            // An idle client has the same rights as an unknown one, so removing it loses nothing.
            if clients.peek_lru().is_some_and(|(_, until)| *until <= now) {
                clients.pop_lru();
            }
        }
        if clients.len() > self.clients_max {
            clients.pop_lru();
        }
    }

    fn at(&self, now: Instant) -> u128 {
        now.saturating_duration_since(self.start).as_nanos() * self.per_minute
    }
}

type Clients<C> = LruCache<C, u128, RandomState>;

/// Until when what a client has done lasts; never before `now`.
fn until<C: Hash + Eq>(clients: &mut Clients<C>, client: &C, now: u128) -> u128 {
    clients.get(client).map_or(now, |until| now.max(*until))
}

fn nanos(count: u128) -> Duration {
    Duration::from_nanos(u64::try_from(count).unwrap_or(u64::MAX))
}
