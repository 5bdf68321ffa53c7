//! What billing counts, for the metrics.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use super::{Billing, Shared, lock};
use crate::domain::{
    consumption::{Row, UsageSource},
    money::NanoUsd,
};

/// Counts since the start of the process.
#[derive(Debug, Default)]
pub(super) struct Counters {
    rows: [AtomicU64; 3],
    cost: AtomicI64,
    failed: AtomicU64,
    excess_max: AtomicI64,
    pub(super) offline: AtomicU64,
}

impl Billing {
    /// The number of accounts whose balance was low at their last admission.
    pub fn accounts_low(&self) -> usize {
        lock(&self.shared.low).len()
    }

    /// The number of running requests.
    pub fn running(&self) -> usize {
        self.shared.running.len()
    }

    /// The sum of the running requests' holds.
    pub fn held(&self) -> NanoUsd {
        self.shared.running.held()
    }

    /// What this node has committed without the store and the store has not counted yet.
    pub fn grace_committed(&self) -> NanoUsd {
        self.shared.grace.committed()
    }

    /// Whether this node could admit any request if the store became unreachable now.
    pub fn has_grace(&self) -> bool {
        self.shared.grace.is_left()
    }

    /// Rows charged since the start, by the source of their usage.
    pub fn rows(&self) -> [(UsageSource, u64); 3] {
        let all = [UsageSource::Reported, UsageSource::Partial, UsageSource::Estimated];
        let mut rows = all.into_iter().zip(&self.shared.counters.rows);
        all.map(|source| {
            (
                source,
                rows.next().map_or(0, |(_, count)| count.load(Ordering::Relaxed)),
            )
        })
    }

    /// The sum charged since the start.
    pub fn charged(&self) -> NanoUsd {
        NanoUsd::from_nanos(self.shared.counters.cost.load(Ordering::Relaxed))
    }

    /// The most by which a charge has exceeded its hold since the start. This is what each running request can add
    /// beyond a key's quota when that is used up.
    pub fn excess_max(&self) -> NanoUsd {
        NanoUsd::from_nanos(self.shared.counters.excess_max.load(Ordering::Relaxed))
    }

    /// Records that could not be written, since the start.
    pub fn failures(&self) -> u64 {
        let failed = self.shared.counters.failed.load(Ordering::Relaxed);
        failed.saturating_add(self.shared.uncertain.lost())
    }

    /// Requests admitted without the store, since the start.
    pub fn offline(&self) -> u64 {
        self.shared.counters.offline.load(Ordering::Relaxed)
    }
}

impl Shared {
    pub(super) fn charged(&self, row: &Row, hold: NanoUsd) {
        let [reported, partial, estimated] = &self.counters.rows;
        let rows = match row.usage_source {
            UsageSource::Reported => reported,
            UsageSource::Partial => partial,
            UsageSource::Estimated => estimated,
        };
        rows.fetch_add(1, Ordering::Relaxed);
        let cost = row.cost_nano_usd;
        self.counters.cost.fetch_add(cost.nanos(), Ordering::Relaxed);
        let excess = cost.saturating_sub(hold).nanos();
        self.counters.excess_max.fetch_max(excess, Ordering::Relaxed);
    }

    pub(super) fn failed(&self) {
        self.counters.failed.fetch_add(1, Ordering::Relaxed);
    }
}
