//! `[stability]`: the listener of the public stability service, its refresh and its rate limits.

use std::{net::SocketAddr, time::Duration};

use ipnet::IpNet;

use super::{
    kinds::{address, networks},
    tls::TlsConfig,
};
use crate::domain::settings::{number, seconds, settings, table};

settings! {
    /// `[stability]`
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub(crate) struct StabilityConfig {
        /// Where anybody may read how the models behave, IP:PORT: the page /status, the API /web/v1/model-stability/summary, its
        /// description /web/v1/openapi.json. No authentication, and no count of requests in it. The gateway's port answers the same.
        listen: SocketAddr = address().or("127.0.0.1:8081"),
        /// How often the record is read from the store, and how long an answer may be kept.
        refresh("refresh_seconds"): Duration = seconds(5, 1..=60),
        /// Most connections to this listener; those that have asked for nothing give way to further ones. Fewer if the process may not
        /// open as many files.
        connections_max: usize = number(256, 1..=1_000_000),
        /// What one IP address (IPv6: one /64) may ask in a minute; more is 429.
        requests_per_minute: u32 = number(120, 1..=1_000_000),
        /// What it may ask at once after a rest.
        burst: u32 = number(60, 1..=1_000_000),
        /// Most addresses remembered for that; beyond it those that asked longest ago are forgotten.
        addresses_max: usize = number(100_000, 1..=10_000_000),
        /// Peers whose X-Forwarded-For tells the client's address, as ADDRESS/BITS or an address: list your own proxies here, or all
        /// that come through them are one client, also in [key_cache.unknown].
        trusted_proxies: Vec<IpNet> = networks(),
        /// As in [gateway].
        proxy_protocol_from: Vec<IpNet> = networks(),
        /// What the listener shows.
        tls: TlsConfig = table(),
    }
}
