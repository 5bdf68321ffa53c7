//! The events in the cache of keys since the start, as counters.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counts of events since the start.
#[derive(Debug, Default)]
pub(super) struct KeyCacheCounters {
    pub(super) hits: AtomicU64,
    pub(super) negative_hits: AtomicU64,
    /// Lookups in the store.
    pub(super) misses: AtomicU64,
    pub(super) offline_hits: AtomicU64,
    pub(super) flushes: AtomicU64,
    /// Lookups in the store that found nothing.
    pub(super) unknown: AtomicU64,
    /// Lookups that were refused because too many found nothing: from one address, and in all.
    pub(super) limited_address: AtomicU64,
    pub(super) limited_all: AtomicU64,
}

impl KeyCacheCounters {
    /// The name and the count of each event.
    pub(super) fn events(&self) -> [(&'static str, u64); 8] {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        [
            ("hit", read(&self.hits)),
            ("negative_hit", read(&self.negative_hits)),
            ("miss", read(&self.misses)),
            ("offline_hit", read(&self.offline_hits)),
            ("flush", read(&self.flushes)),
            ("unknown", read(&self.unknown)),
            ("limited_address", read(&self.limited_address)),
            ("limited_all", read(&self.limited_all)),
        ]
    }
}

pub(super) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}
