//! `[key_cache.unknown]`: limits on lookups of keys that do not exist.

use serde::Deserialize;

use super::values::Values;

/// The section as in the file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawUnknownKeys {
    entries_max: Option<u64>,
    per_minute: Option<u64>,
    burst: Option<u64>,
    addresses_max: Option<u64>,
    total_per_minute: Option<u64>,
    total_burst: Option<u64>,
}

/// The section, checked and with defaults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UnknownKeysConfig {
    /// Keys that are remembered as unknown; at least 1.
    pub entries_max: usize,
    /// Lookups that found nothing which one address may cause in a minute, in the long run; at least 1.
    pub per_minute: u32,
    /// What it may cause at once after a rest; at least 1.
    pub burst: u32,
    /// Addresses that are remembered for that; at least 1.
    pub addresses_max: usize,
    /// What all addresses together may cause in a minute, on this node; at least 1.
    pub total_per_minute: u32,
    /// What they may cause at once after a rest; at least 1.
    pub total_burst: u32,
}

pub(super) fn resolve(values: &mut Values<'_>, raw: &RawUnknownKeys) -> UnknownKeysConfig {
    const MILLION: u64 = 1_000_000;
    let mut rate = |key: &str, given, default, most| {
        let number = values.number(&["key_cache", "unknown", key], given, default, 1..=most);
        u32::try_from(number).unwrap_or(u32::MAX)
    };
    let per_minute = rate("per_minute", raw.per_minute, 600, MILLION);
    let burst = rate("burst", raw.burst, 100, MILLION);
    let total_per_minute = rate("total_per_minute", raw.total_per_minute, 60_000, 10 * MILLION);
    let total_burst = rate("total_burst", raw.total_burst, 1000, MILLION);
    let mut count =
        |key: &str, given, default| values.count(&["key_cache", "unknown", key], given, default, 1..=10 * MILLION);
    UnknownKeysConfig {
        entries_max: count("entries_max", raw.entries_max, 10_000),
        per_minute,
        burst,
        addresses_max: count("addresses_max", raw.addresses_max, 100_000),
        total_per_minute,
        total_burst,
    }
}
