//! `[key_cache]`: the local cache in front of the store, and what keys that do not exist may cost.

use std::time::Duration;

use crate::domain::settings::{millis, number, seconds, settings, table};

const MILLION: u32 = 1_000_000;

settings! {
    /// `[key_cache]`
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub(crate) struct KeyCacheConfig {
        /// Longest use of a key without asking the store again. A new key works at once.
        lifetime("lifetime_seconds"): Duration = seconds(60, 1..=3600),
        /// How long a key that is unknown is remembered as unknown.
        negative("negative_seconds"): Duration = seconds(5, 1..=3600),
        /// Longest use of a key that worked, while the store is away.
        offline("offline_seconds"): Duration = seconds(300, 0..=86_400),
        /// Most keys held; beyond it the least recently used go.
        entries_max: usize = number(100_000, 1..=10_000_000),
        /// How often Redis is asked for changes, beside telling of them; an embedded store tells of each. Above 900 a revoked key may
        /// work for longer than a second when the connection that tells of it has been cut.
        poll("poll_ms"): Duration = millis(500, 10..=10_000),
        /// How often last-used times are written to the store.
        flush_used("flush_used_seconds"): Duration = seconds(5, 1..=3600),
        /// Keys that do not exist. Anybody can make up one with a right checksum, so the store is asked for those that this node knows
        /// nothing of only as often as follows; beyond it 429, with a short retry-after. Keys in use are not concerned: they are kept
        /// apart, and looked up again when that is due.
        unknown: UnknownKeysConfig = table(),
    }
}

settings! {
    /// `[key_cache.unknown]`
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub(crate) struct UnknownKeysConfig {
        /// Most unknown keys remembered, for negative_seconds each.
        entries_max: usize = number(10_000, 1..=10_000_000),
        /// Lookups that found nothing which one IP address (IPv6: one /64) may cause in a minute. Proxies in front of weir belong into
        /// [stability] trusted_proxies, or all that come through them are one address.
        per_minute: u32 = number(600, 1..=MILLION),
        /// What it may cause at once after a rest.
        burst: u32 = number(100, 1..=MILLION),
        /// Most addresses remembered for that; beyond it those that asked longest ago are forgotten.
        addresses_max: usize = number(100_000, 1..=10_000_000),
        /// What all addresses together may cause in a minute, on each node.
        total_per_minute: u32 = number(60_000, 1..=10 * MILLION),
        /// What they may cause at once after a rest.
        total_burst: u32 = number(1000, 1..=MILLION),
    }
}
