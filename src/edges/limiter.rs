//! Rate limits per client by the generic cell rate algorithm (ITU-T I.371): a token bucket that stores one time per client. It
//! counts in integers, without rounding.

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
/// Maximum number of idle clients that one event removes, so that memory shrinks as gradually as it grew.
const SWEPT_MAX: usize = 2;

/// A rate limit, and the number of clients it is tracked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RateAllowance {
    /// Sustained events per minute of a client, at least 1.
    pub per_minute: u32,
    /// Maximum events of an idle client at once, at least 1.
    pub burst: u32,
    /// Maximum number of clients to track, at least 1.
    pub clients_max: usize,
}

/// Limits the event rate of each client. Times are nanoseconds since `start`, multiplied by `per_minute`, so that one event
/// takes exactly `MINUTE_NANOS`. A limit shared by all has one client, `()`.
#[derive(Debug)]
pub(crate) struct Limiter<C: Hash + Eq> {
    start: Instant,
    per_minute: u128,
    /// How far a client may be ahead of its rate, in the same unit.
    ahead: u128,
    clients_max: usize,
    /// For each client, the time at which its rate would allow all its events so far, the most recent client first. SipHash,
    /// because strangers choose the addresses.
    clients: Mutex<ClientRates<C>>,
}

impl<C: Copy + Hash + Eq> Limiter<C> {
    /// A limiter without events. `start` is a time before the first use.
    pub(crate) fn new(allowance: RateAllowance, start: Instant) -> Self {
        let burst = u128::from(allowance.burst.max(1));
        Self {
            start,
            per_minute: u128::from(allowance.per_minute.max(1)),
            ahead: (burst - 1) * MINUTE_NANOS,
            clients_max: allowance.clients_max.max(1),
            // Unbounded, so that it does not allocate for `clients_max` in advance.
            clients: Mutex::new(LruCache::unbounded_with_hasher(RandomState::new())),
        }
    }

    /// Admits and counts an event of a client.
    ///
    /// # Errors
    /// The limit is reached: the time until the event would be admitted. A refused event is not counted.
    pub(crate) fn try_acquire(&self, client: C, now: Instant) -> Result<(), Duration> {
        let now = self.scaled(now);
        let mut clients = self.clients.lock();
        let until = self.allowed(&mut clients, client, now)?;
        self.insert(&mut clients, client, until, now);
        Ok(())
    }

    /// Whether an event of a client would be admitted, without counting it.
    ///
    /// # Errors
    /// As for [`Limiter::try_acquire`].
    pub(crate) fn check(&self, client: C, now: Instant) -> Result<(), Duration> {
        self.allowed(&mut self.clients.lock(), client, self.scaled(now))
            .map(drop)
    }

    /// Counts an event of a client even beyond its limit, so that it has to wait longer.
    pub(crate) fn count(&self, client: C, now: Instant) {
        let now = self.scaled(now);
        let mut clients = self.clients.lock();
        let until = client_time(&mut clients, &client, now);
        self.insert(&mut clients, client, until, now);
    }

    /// The client's time, as in `clients`, if it may have another event.
    fn allowed(&self, clients: &mut ClientRates<C>, client: C, now: u128) -> Result<u128, Duration> {
        let until = client_time(clients, &client, now);
        match (until - now).saturating_sub(self.ahead) {
            0 => Ok(until),
            early => Err(nanos(early.div_ceil(self.per_minute))),
        }
    }

    fn insert(&self, clients: &mut ClientRates<C>, client: C, until: u128, now: u128) {
        clients.put(client, until + MINUTE_NANOS);
        for _ in 0..SWEPT_MAX {
            // An idle client is treated like an unknown one, so removing it changes nothing.
            if clients.peek_lru().is_some_and(|(_, until)| *until <= now) {
                clients.pop_lru();
            }
        }
        if clients.len() > self.clients_max {
            clients.pop_lru();
        }
    }

    fn scaled(&self, now: Instant) -> u128 {
        now.saturating_duration_since(self.start).as_nanos() * self.per_minute
    }
}

type ClientRates<C> = LruCache<C, u128, RandomState>;

/// The client's time, as in [`Limiter`], but not before `now`.
fn client_time<C: Hash + Eq>(clients: &mut ClientRates<C>, client: &C, now: u128) -> u128 {
    clients.get(client).map_or(now, |until| now.max(*until))
}

fn nanos(count: u128) -> Duration {
    Duration::from_nanos(u64::try_from(count).unwrap_or(u64::MAX))
}
