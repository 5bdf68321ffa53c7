//! Billing's own counts since the start of the process.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use crate::domain::{
    ledger::consumption::{Row, UsageSource},
    money::NanoUsd,
};

/// Counts since the start of the process.
#[derive(Debug, Default)]
pub(super) struct BillingCounters {
    /// By the source of the usage, in the order of [`UsageSource::ALL`].
    rows: [AtomicU64; UsageSource::ALL.len()],
    pub(super) cost: AtomicI64,
    pub(super) failed: AtomicU64,
    pub(super) excess_max: AtomicI64,
    pub(super) grace_admissions: AtomicU64,
    pub(super) lease_admissions: AtomicU64,
}

impl BillingCounters {
    /// Records the charge of a request whose hold was `hold`.
    pub(super) fn record_charge(&self, row: &Row, hold: NanoUsd) {
        for (_, rows) in self.by_source().filter(|(source, _)| *source == row.usage_source) {
            rows.fetch_add(1, Ordering::Relaxed);
        }
        let cost = row.cost_nano_usd;
        self.cost.fetch_add(cost.nanos(), Ordering::Relaxed);
        let excess = cost.saturating_sub(hold).nanos();
        self.excess_max.fetch_max(excess, Ordering::Relaxed);
    }

    /// Records that a journal record could not be written.
    pub(super) fn record_failure(&self) {
        self.failed.fetch_add(1, Ordering::Relaxed);
    }

    /// Rows charged, by the source of their usage.
    pub(super) fn rows(&self) -> impl Iterator<Item = (UsageSource, u64)> {
        self.by_source()
            .map(|(source, count)| (source, count.load(Ordering::Relaxed)))
    }

    fn by_source(&self) -> impl Iterator<Item = (UsageSource, &AtomicU64)> {
        UsageSource::ALL.into_iter().zip(&self.rows)
    }
}
