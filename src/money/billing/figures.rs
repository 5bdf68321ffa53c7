//! Billing's figures for the metrics.

use std::sync::atomic::Ordering;

use crate::{
    domain::{ledger::consumption::UsageSource, money::NanoUsd},
    money::billing::service::Billing,
};

impl Billing {
    /// The number of accounts whose balance was low when the store last reported it.
    pub(crate) fn low_accounts(&self) -> usize {
        self.engine.grace.low_accounts()
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

    /// The money that this node has committed by grace and the store has not counted yet.
    pub(crate) fn grace_committed(&self) -> NanoUsd {
        self.engine.grace.committed()
    }

    /// Whether this node could admit any request by grace if the store became unreachable now.
    pub(crate) fn has_grace(&self) -> bool {
        self.engine.grace.can_admit_any()
    }

    /// Rows charged since the start, by the source of their usage.
    pub(crate) fn rows(&self) -> impl Iterator<Item = (UsageSource, u64)> {
        self.engine.counters.rows()
    }

    /// The sum charged since the start.
    pub(crate) fn charged(&self) -> NanoUsd {
        NanoUsd::from_nanos(self.engine.counters.cost.load(Ordering::Relaxed))
    }

    /// The maximum amount by which a charge has exceeded its hold since the start. Each running request can exceed a quota that
    /// is used up by about this much.
    pub(crate) fn excess_max(&self) -> NanoUsd {
        NanoUsd::from_nanos(self.engine.counters.excess_max.load(Ordering::Relaxed))
    }

    /// Records that could not be written, since the start.
    pub(crate) fn failures(&self) -> u64 {
        let failed = self.engine.counters.failed.load(Ordering::Relaxed);
        failed.saturating_add(self.engine.unconfirmed.dropped())
    }

    /// Requests admitted from leases, since the start.
    pub(crate) fn lease_admissions(&self) -> u64 {
        self.engine.counters.lease_admissions.load(Ordering::Relaxed)
    }

    /// The number of leases, and the amount that the store holds for them.
    pub(crate) fn leases(&self) -> (usize, NanoUsd) {
        let figures = self.engine.leases.figures();
        (figures.leases, figures.amount)
    }

    /// Requests admitted by grace, since the start.
    pub(crate) fn grace_admissions(&self) -> u64 {
        self.engine.counters.grace_admissions.load(Ordering::Relaxed)
    }
}
