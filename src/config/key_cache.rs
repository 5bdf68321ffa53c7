//! `[key_cache]`: the local cache in front of the store, and limits for lookups of unknown keys.

use std::time::Duration;

use crate::domain::settings::{millis, number, seconds, settings, table};

const LOOKUPS_MAX: u32 = 1_000_000;

settings! {
    /// `[key_cache]`
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub(crate) struct KeyCacheConfig {
        /// How long a key is used without asking the store again. A new key works at once.
        lifetime("lifetime_seconds"): Duration = seconds(60, 1..=3600),
        /// How long an unknown key is remembered as unknown.
        negative("negative_seconds"): Duration = seconds(5, 1..=3600),
        /// How long a valid key is used while the store is unreachable.
        offline("offline_seconds"): Duration = seconds(300, 0..=86_400),
        /// Maximum number of cached keys; the least recently used are dropped first.
        entries_max: usize = number(100_000, 1..=10_000_000),
        /// How often Redis is polled for changes, in addition to its notifications; an embedded store reports each change. Above
        /// 900, a revoked key may work for longer than a second if the connection with the notifications is cut.
        poll("poll_ms"): Duration = millis(500, 10..=10_000),
        /// How often last-used times are written to the store.
        flush_used("flush_used_seconds"): Duration = seconds(5, 1..=3600),
        /// Unknown keys. Anybody can make up a key with a valid checksum, so this node looks up keys that it does not know only
        /// as often as configured here; beyond it 429, with a short retry-after. Keys in use are not affected: they are cached
        /// separately, and looked up again when that is due.
        unknown: UnknownKeysConfig = table(),
    }
}

settings! {
    /// `[key_cache.unknown]`
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub(crate) struct UnknownKeysConfig {
        /// Maximum number of unknown keys remembered, each for negative_seconds.
        entries_max: usize = number(10_000, 1..=10_000_000),
        /// Lookups per minute that find nothing, by one IP address (IPv6: one /64). List proxies in front of weir in [stability]
        /// trusted_proxies, or all their clients count as one address.
        per_minute: u32 = number(600, 1..=LOOKUPS_MAX),
        /// Such lookups at once after a pause.
        burst: u32 = number(100, 1..=LOOKUPS_MAX),
        /// Maximum number of addresses remembered for this; those without a request for longest are forgotten first.
        addresses_max: usize = number(100_000, 1..=10_000_000),
        /// Lookups per minute that find nothing, by all addresses together, on each node.
        total_per_minute: u32 = number(60_000, 1..=10 * LOOKUPS_MAX),
        /// Such lookups at once after a pause.
        total_burst: u32 = number(1000, 1..=LOOKUPS_MAX),
    }
}
