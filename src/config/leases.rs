//! `[leases]`: which keys the node admits by itself, out of budget that a Redis store has lent it.

use serde::Deserialize;

use super::values::Values;

/// The section as in the file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawLeases {
    enabled: Option<bool>,
    requests_per_second: Option<u64>,
    max: Option<u64>,
}

/// The section, checked and with defaults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LeasesConfig {
    /// Whether there are any.
    pub enabled: bool,
    /// The requests per second of a key from which on it gets one.
    pub requests_per_second: u64,
    /// The most at one time on this node.
    pub max: usize,
}

/// A lease takes about eight calls a second, however much is admitted out of it: fewer than this many requests take.
const REQUESTS_PER_SECOND: u64 = 10;
const MAX: u64 = 1_000;

pub(super) fn resolve(values: &mut Values<'_>, raw: &RawLeases) -> LeasesConfig {
    let at = |name| ["leases", name];
    LeasesConfig {
        enabled: raw.enabled.unwrap_or(true),
        requests_per_second: values.number(
            &at("requests_per_second"),
            raw.requests_per_second,
            REQUESTS_PER_SECOND,
            1..=1_000_000,
        ),
        max: values.count(&at("max"), raw.max, MAX, 1..=100_000),
    }
}
