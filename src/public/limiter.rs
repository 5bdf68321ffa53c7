//! How often one client may ask: the generic cell rate algorithm (ITU-T I.371), which is a bucket of tokens kept as one
//! moment per client. In whole numbers, so nothing is lost by rounding.

use std::{
    hash::RandomState,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use lru::LruCache;

use crate::public::{Settings, client::Client};

#[cfg(test)]
mod tests;

const MINUTE_NANOS: u128 = 60_000_000_000;
/// Clients at rest that one request sweeps out at most: the memory of a crowd goes as it came.
const SWEPT_MAX: usize = 2;

/// Counts requests per client. Times are kept in nanoseconds since `start`, times the requests per minute: one request
/// then is worth exactly [`MINUTE_NANOS`] of them.
#[derive(Debug)]
pub(super) struct Limiter {
    start: Instant,
    per_minute: u128,
    /// How far a client may be ahead of its rate and still be let in.
    ahead: u128,
    clients_max: usize,
    /// Until when each client's requests so far would last at its rate, who asked last in front. Sip hashing: the
    /// addresses are chosen by strangers.
    clients: Mutex<LruCache<Client, u128, RandomState>>,
}

impl Limiter {
    /// Nobody has asked yet. `start` is a moment before the first request.
    pub(super) fn new(settings: &Settings, start: Instant) -> Self {
        let burst = u128::from(settings.burst.max(1));
        Self {
            start,
            per_minute: u128::from(settings.requests_per_minute.max(1)),
            ahead: (burst - 1) * MINUTE_NANOS,
            clients_max: settings.addresses_max.max(1),
            // Grows with the clients that there are, not to the limit at once.
            clients: Mutex::new(LruCache::unbounded_with_hasher(RandomState::new())),
        }
    }

    /// Lets a request in and counts it.
    ///
    /// # Errors
    /// The client asks too often; how long until it would be let in. What is refused is not counted.
    pub(super) fn admit(&self, client: Client, now: Instant) -> Result<(), Duration> {
        let now = now.saturating_duration_since(self.start).as_nanos() * self.per_minute;
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        let until = clients.get(&client).map_or(now, |until| now.max(*until));
        let early = (until - now).saturating_sub(self.ahead);
        if early > 0 {
            return Err(nanos(early.div_ceil(self.per_minute)));
        }
        clients.put(client, until + MINUTE_NANOS);
        for _ in 0..SWEPT_MAX {
            // Who is at rest may do what a stranger may: nothing is forgotten with it.
            if clients.peek_lru().is_some_and(|(_, until)| *until <= now) {
                clients.pop_lru();
            }
        }
        if clients.len() > self.clients_max {
            clients.pop_lru();
        }
        Ok(())
    }
}

fn nanos(count: u128) -> Duration {
    Duration::from_nanos(u64::try_from(count).unwrap_or(u64::MAX))
}
