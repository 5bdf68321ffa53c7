//! Limits lookups of keys that turn out not to exist. Only failed lookups count, so many real keys may come from one
//! address. Beyond the limit an unknown digest is not looked up until time has passed.

use std::time::{Duration, Instant};

use crate::edges::limiter::{Allowance, Limiter, client::Client};

/// Limits on what made-up keys may cost.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UnknownSettings {
    /// The most digests remembered as unknown.
    pub entries_max: usize,
    /// How many failing lookups one client may cause.
    pub per_address: Allowance,
    /// How many failing lookups all clients together may cause; `clients_max` is not used.
    pub in_all: Allowance,
}

/// Limits lookups of unknown keys: per client address, and for the whole node.
#[derive(Debug)]
pub(super) struct Limits {
    per_address: Limiter<Client>,
    in_all: Limiter<()>,
}

/// The limit that is reached, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reached {
    Address(Duration),
    All(Duration),
}

impl Limits {
    /// Starts without any lookup. `start` is a time before the first use.
    pub(super) fn new(settings: &UnknownSettings, start: Instant) -> Self {
        let in_all = Allowance {
            clients_max: 1,
            ..settings.in_all
        };
        Self {
            per_address: Limiter::new(settings.per_address, start),
            in_all: Limiter::new(in_all, start),
        }
    }

    /// Whether the store may be asked for an unknown digest.
    pub(super) fn check(&self, asker: Client, now: Instant) -> Result<(), Reached> {
        self.per_address.check(asker, now).map_err(Reached::Address)?;
        self.in_all.check((), now).map_err(Reached::All)
    }

    /// Counts a lookup that found no key.
    pub(super) fn found_nothing(&self, asker: Client, now: Instant) {
        self.per_address.count(asker, now);
        self.in_all.count((), now);
    }
}
