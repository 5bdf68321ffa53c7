//! Limits lookups of keys that turn out not to exist.

use std::time::{Duration, Instant};

use crate::edges::limiter::{Limiter, RateAllowance, client::ClientAddress};

/// Limits on the cost of made-up keys.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UnknownKeySettings {
    /// The maximum number of digests remembered as unknown.
    pub entries_max: usize,
    /// The failing lookups that one client may cause.
    pub per_address: RateAllowance,
    /// The failing lookups that all clients together may cause; `clients_max` is not used.
    pub in_all: RateAllowance,
}

/// Limits lookups of unknown keys, per client address and for the whole node. Only failed lookups count, so many real keys
/// may come from one address. Beyond the limit an unknown digest is not looked up until time has passed.
#[derive(Debug)]
pub(super) struct UnknownKeyLimits {
    per_address: Limiter<ClientAddress>,
    in_all: Limiter<()>,
}

/// The limit that is reached, and the time until it allows a lookup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReachedLimit {
    Address(Duration),
    All(Duration),
}

impl UnknownKeyLimits {
    /// Limits without any lookup yet. `start` is a time before the first use.
    pub(super) fn new(settings: &UnknownKeySettings, start: Instant) -> Self {
        let in_all = RateAllowance {
            clients_max: 1,
            ..settings.in_all
        };
        Self {
            per_address: Limiter::new(settings.per_address, start),
            in_all: Limiter::new(in_all, start),
        }
    }

    /// Checks that the store may be asked for an unknown digest.
    pub(super) fn check(&self, asker: ClientAddress, now: Instant) -> Result<(), ReachedLimit> {
        self.per_address.check(asker, now).map_err(ReachedLimit::Address)?;
        self.in_all.check((), now).map_err(ReachedLimit::All)
    }

    /// Counts a lookup that found no key.
    pub(super) fn count_failure(&self, asker: ClientAddress, now: Instant) {
        self.per_address.count(asker, now);
        self.in_all.count((), now);
    }
}
