//! What billing counts itself, since the start of the process.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use crate::domain::{
    ledger::consumption::{Row, UsageSource},
    money::NanoUsd,
};

/// Counts since the start of the process.
#[derive(Debug, Default)]
pub(super) struct Counters {
    rows: [AtomicU64; 3],
    pub(super) cost: AtomicI64,
    pub(super) failed: AtomicU64,
    pub(super) excess_max: AtomicI64,
    pub(super) offline: AtomicU64,
    pub(super) leased: AtomicU64,
}

impl Counters {
    /// A request was charged whose hold was `hold`.
    pub(super) fn charged(&self, row: &Row, hold: NanoUsd) {
        let [reported, partial, estimated] = &self.rows;
        let rows = match row.usage_source {
            UsageSource::Reported => reported,
            UsageSource::Partial => partial,
            UsageSource::Estimated => estimated,
        };
        rows.fetch_add(1, Ordering::Relaxed);
        let cost = row.cost_nano_usd;
        self.cost.fetch_add(cost.nanos(), Ordering::Relaxed);
        let excess = cost.saturating_sub(hold).nanos();
        self.excess_max.fetch_max(excess, Ordering::Relaxed);
    }

    /// A record could not be written.
    pub(super) fn failed(&self) {
        self.failed.fetch_add(1, Ordering::Relaxed);
    }

    /// Rows charged, by the source of their usage.
    pub(super) fn rows(&self) -> [(UsageSource, u64); 3] {
        let [reported, partial, estimated] = &self.rows;
        [
            (UsageSource::Reported, reported),
            (UsageSource::Partial, partial),
            (UsageSource::Estimated, estimated),
        ]
        .map(|(source, count)| (source, count.load(Ordering::Relaxed)))
    }
}
