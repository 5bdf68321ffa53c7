//! What billing counts, for whoever scrapes.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use super::{Billing, Shared, lock};
use crate::domain::{
    consumption::{Row, UsageSource},
    money::NanoUsd,
};

/// What has been charged since the start.
#[derive(Debug, Default)]
pub(super) struct Counters {
    rows: [AtomicU64; 3],
    cost: AtomicI64,
    failed: AtomicU64,
    excess_max: AtomicI64,
    pub(super) offline: AtomicU64,
}

impl Billing {
    /// How many accounts' balances were low when they were last asked for.
    pub fn accounts_low(&self) -> usize {
        lock(&self.shared.low).len()
    }

    /// How many requests are running.
    pub fn running(&self) -> usize {
        self.shared.running.len()
    }

    /// What is held for the requests that are running.
    pub fn held(&self) -> NanoUsd {
        self.shared.running.held()
    }

    /// What keys have committed while the store was away.
    pub fn grace_committed(&self) -> NanoUsd {
        self.shared.grace.committed()
    }

    /// Whether this node would admit anybody if the store were away now.
    pub fn has_grace(&self) -> bool {
        self.shared.grace.is_left()
    }

    /// How many rows were charged since the start, by where their figures come from.
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

    /// What was charged since the start.
    pub fn charged(&self) -> NanoUsd {
        NanoUsd::from_nanos(self.shared.counters.cost.load(Ordering::Relaxed))
    }

    /// By how much a charge has exceeded its hold at most since the start: what a key can exceed its quota by, per request
    /// that runs when it is used up.
    pub fn excess_max(&self) -> NanoUsd {
        NanoUsd::from_nanos(self.shared.counters.excess_max.load(Ordering::Relaxed))
    }

    /// Records that could not be written.
    pub fn failures(&self) -> u64 {
        let failed = self.shared.counters.failed.load(Ordering::Relaxed);
        failed.saturating_add(self.shared.uncertain.lost())
    }

    /// Requests admitted while the store was away.
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
