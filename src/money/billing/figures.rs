//! The figures of billing, for the metrics.

use std::sync::atomic::Ordering;

use crate::{
    domain::{ledger::consumption::UsageSource, money::NanoUsd},
    money::billing::service::Billing,
};

impl Billing {
    /// The number of accounts whose balance was low when the store last told of it.
    pub(crate) fn accounts_low(&self) -> usize {
        self.engine.grace.low()
    }

    /// The number of running requests.
    #[cfg(test)]
    pub(crate) fn running(&self) -> usize {
        self.engine.running.len()
    }

    /// The sum of the running requests' holds.
    pub(crate) fn held(&self) -> NanoUsd {
        self.engine.running.held()
    }

    /// What this node has committed without the store and the store has not counted yet.
    pub(crate) fn grace_committed(&self) -> NanoUsd {
        self.engine.grace.committed()
    }

    /// Whether this node could admit any request if the store became unreachable now.
    pub(crate) fn has_grace(&self) -> bool {
        self.engine.grace.is_left()
    }

    /// Rows charged since the start, by the source of their usage.
    pub(crate) fn rows(&self) -> impl Iterator<Item = (UsageSource, u64)> {
        self.engine.counters.rows()
    }

    /// The sum charged since the start.
    pub(crate) fn charged(&self) -> NanoUsd {
        NanoUsd::from_nanos(self.engine.counters.cost.load(Ordering::Relaxed))
    }

    /// The most by which a charge has exceeded its hold since the start. This is what each running request can add
    /// beyond a key's quota when that is used up.
    pub(crate) fn excess_max(&self) -> NanoUsd {
        NanoUsd::from_nanos(self.engine.counters.excess_max.load(Ordering::Relaxed))
    }

    /// Records that could not be written, since the start.
    pub(crate) fn failures(&self) -> u64 {
        let failed = self.engine.counters.failed.load(Ordering::Relaxed);
        failed.saturating_add(self.engine.unconfirmed.lost())
    }

    /// Requests admitted out of leases, since the start.
    pub(crate) fn leased(&self) -> u64 {
        self.engine.counters.leased.load(Ordering::Relaxed)
    }

    /// The number of leases, and what the store holds for them.
    pub(crate) fn leases(&self) -> (usize, NanoUsd) {
        let figures = self.engine.leases.figures();
        (figures.leases, figures.amount)
    }

    /// Requests admitted without the store, since the start.
    pub(crate) fn offline(&self) -> u64 {
        self.engine.counters.offline.load(Ordering::Relaxed)
    }
}
