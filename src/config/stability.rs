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
        /// The address of the public stability service, IP:PORT: the page /status, the API /web/v1/model-stability/summary, and
        /// its description /web/v1/openapi.json. It needs no authentication, and shows no numbers of requests. The gateway's
        /// port serves the same.
        listen: SocketAddr = address().or("127.0.0.1:8081"),
        /// How often the record is read from the store, and how long a response may be cached.
        refresh("refresh_seconds"): Duration = seconds(5, 1..=60),
        /// Maximum number of connections to this listener; those without a request make room for new ones. Lower if the process
        /// may not open that many files.
        connections_max: usize = number(256, 1..=1_000_000),
        /// Requests per minute from one IP address (IPv6: one /64); more is 429.
        requests_per_minute: u32 = number(120, 1..=1_000_000),
        /// Requests at once after a pause.
        burst: u32 = number(60, 1..=1_000_000),
        /// Maximum number of addresses remembered for this; those without a request for longest are forgotten first.
        addresses_max: usize = number(100_000, 1..=10_000_000),
        /// Peers whose X-Forwarded-For is trusted for the client's address, as ADDRESS/BITS or an address: list your own proxies
        /// here, or all their clients count as one, also in [key_cache.unknown].
        trusted_proxies: Vec<IpNet> = networks(),
        /// As in [gateway].
        proxy_protocol_from: Vec<IpNet> = networks(),
        /// The listener's certificates.
        tls: TlsConfig = table(),
    }
}
