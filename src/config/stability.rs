//! `[stability]`: the listener of the public stability service, its refresh and its rate limits.

use std::net::SocketAddr;
use std::time::Duration;

use ipnet::IpNet;
use serde::Deserialize;

use super::tls::{self, RawTls, TlsConfig};
use super::values::{Values, loopback};

/// The section as in the file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawStability {
    listen: Option<String>,
    refresh_seconds: Option<u64>,
    connections_max: Option<u64>,
    requests_per_minute: Option<u64>,
    burst: Option<u64>,
    addresses_max: Option<u64>,
    trusted_proxies: Option<Vec<String>>,
    proxy_protocol_from: Option<Vec<String>>,
    tls: RawTls,
}

/// The section, checked and with defaults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StabilityConfig {
    /// The service's own listener, besides the gateway's port; port 0 takes a free one.
    pub listen: SocketAddr,
    /// How often the store is read, and so how long an answer is valid.
    pub refresh: Duration,
    /// The most connections to its own listener; fewer if the process may not open so many files.
    pub connections_max: usize,
    /// Requests per minute and address in the long run; at least 1.
    pub requests_per_minute: u32,
    /// Requests of one address at once after a rest; at least 1.
    pub burst: u32,
    /// The most addresses remembered; at least 1.
    pub addresses_max: usize,
    /// Peers whose `X-Forwarded-For` is believed.
    pub trusted_proxies: Vec<IpNet>,
    /// Peers whose connections begin with a header of the PROXY protocol.
    pub proxy_protocol_from: Vec<IpNet>,
    /// What the listener shows.
    pub tls: TlsConfig,
}

impl StabilityConfig {
    /// What is read only at the start: all but which certificates there are.
    pub(super) fn at_start(&self) -> (bool, Self) {
        let rest = Self {
            tls: TlsConfig::default(),
            ..self.clone()
        };
        (self.tls.is_on(), rest)
    }
}

pub(super) fn resolve(values: &mut Values<'_>, raw: &RawStability) -> StabilityConfig {
    let mut rate = |key: &str, given, default| {
        let number = values.number(&["stability", key], given, default, 1..=1_000_000);
        u32::try_from(number).unwrap_or(u32::MAX)
    };
    let requests_per_minute = rate("requests_per_minute", raw.requests_per_minute, 120);
    let burst = rate("burst", raw.burst, 60);
    StabilityConfig {
        listen: values.address(&["stability", "listen"], raw.listen.as_deref(), loopback(8081)),
        refresh: values.seconds(&["stability", "refresh_seconds"], raw.refresh_seconds, 5, 1..=60),
        connections_max: values.count(
            &["stability", "connections_max"],
            raw.connections_max,
            256,
            1..=1_000_000,
        ),
        requests_per_minute,
        burst,
        addresses_max: values.count(
            &["stability", "addresses_max"],
            raw.addresses_max,
            100_000,
            1..=10_000_000,
        ),
        trusted_proxies: values.networks(&["stability", "trusted_proxies"], raw.trusted_proxies.as_deref()),
        proxy_protocol_from: values.networks(
            &["stability", "proxy_protocol_from"],
            raw.proxy_protocol_from.as_deref(),
        ),
        tls: tls::resolve(values, "stability", &raw.tls),
    }
}
