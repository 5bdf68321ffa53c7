//! `[own_usage]`: how often one address may ask what its keys have used.

use serde::Deserialize;

use super::values::Values;

/// The section as in the file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawOwnUsage {
    per_minute: Option<u64>,
    burst: Option<u64>,
    addresses_max: Option<u64>,
}

/// The section, checked and with defaults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OwnUsageConfig {
    /// Questions of one address in a minute, in the long run; at least 1.
    pub per_minute: u32,
    /// Questions at once after a rest; at least 1.
    pub burst: u32,
    /// Addresses that are remembered for that; at least 1.
    pub addresses_max: usize,
}

pub(super) fn resolve(values: &mut Values<'_>, raw: &RawOwnUsage) -> OwnUsageConfig {
    let mut rate = |key: &str, given, default| {
        let number = values.number(&["own_usage", key], given, default, 1..=1_000_000);
        u32::try_from(number).unwrap_or(u32::MAX)
    };
    OwnUsageConfig {
        per_minute: rate("per_minute", raw.per_minute, 60),
        burst: rate("burst", raw.burst, 20),
        addresses_max: values.count(
            &["own_usage", "addresses_max"],
            raw.addresses_max,
            100_000,
            1..=10_000_000,
        ),
    }
}
