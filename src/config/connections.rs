//! `[connections]` and `[own_usage]`: limits of clients' connections and addresses.

use std::time::Duration;

use crate::domain::settings::{Section, number, seconds, settings, within};

/// Maximum memory that a head takes per byte of its limit: over HTTP/2, fields are decoded as they arrive.
const HEAD_BYTES_FACTOR: u64 = 4;
const HEAD_BUDGET_MAX: u64 = 1 << 40;
/// The default memory limit for the heads of one address, in bytes.
const HEAD_ADDRESS_BYTES: u64 = 8 << 20;
const MILLION: usize = 1_000_000;

settings! {
    /// `[connections]`
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) struct ConnectionsConfig {
        /// Maximum number of connections to the gateway; further ones are closed at once. Lower if the process may not open that
        /// many files: some are kept for the store, the providers, and /livez, /metrics and the admin socket, which must always
        /// respond.
        max: usize = number(16_384, 1..=MILLION).restart(),
        /// Maximum number of running requests on all connections, HTTP/2 streams included; further ones get 503. Lower as above.
        running_max: usize = number(16_384, 1..=MILLION),
        /// Maximum number of connections from one IP address (IPv6: one /64), to the gateway and to the public stability service
        /// each; at most half of all. [stability] trusted_proxies are exempt.
        per_address_max: usize = number(1024, 1..=MILLION).restart(),
        /// Timeout for the TLS handshake and the PROXY header of a new connection.
        handshake("handshake_seconds"): Duration = seconds(10, 1..=60),
        /// Timeout for the first byte on a new connection.
        first_byte("first_byte_seconds"): Duration = seconds(10, 1..=600),
        /// Maximum time from the first byte of a request's head to the last.
        head("head_seconds"): Duration = seconds(20, 1..=600),
        /// Memory for incomplete heads of requests, in bytes. Beyond it the largest are dropped, with 503 over HTTP/1.1; heads of
        /// up to 4096 bytes are always read, and do not count. At least four times [gateway] header_bytes_max.
        head_budget_bytes: u64 = number(64 << 20, 1..=HEAD_BUDGET_MAX).restart(),
        /// The same for one IP address (IPv6: one /64). Without it: 8 MiB, or head_budget_bytes if that is less.
        head_address_bytes: Option<u64> = within(1..=HEAD_BUDGET_MAX).optional(8 << 20).restart(),
        /// Maximum number of requests on one connection; the last answer announces the close (HTTP/2: GOAWAY).
        requests_max: u32 = number(10_000, 1..=1_000_000_000),
        /// HTTP/2: maximum number of concurrent streams on a connection.
        h2_streams_max: u32 = number(100, 1..=10_000),
        /// HTTP/2: maximum number of streams that a client may reset before weir has handled them.
        h2_resets_max: usize = number(20, 1..=10_000),
    }
}

settings! {
    /// `[own_usage]`
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub(crate) struct OwnUsageConfig {
        /// Requests per minute from one IP address (IPv6: one /64); beyond it 429. List proxies in front of weir in [stability]
        /// trusted_proxies, or all their clients count as one address.
        per_minute: u32 = number(60, 1..=1_000_000),
        /// Requests at once after a pause.
        burst: u32 = number(20, 1..=1_000_000),
        /// Maximum number of addresses remembered for this; those without a request for longest are forgotten first.
        addresses_max: usize = number(100_000, 1..=10 * MILLION),
    }
}

/// The memory limits for incomplete heads of requests, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HeadsConfig {
    /// For all heads.
    pub bytes_max: u64,
    /// For the heads of one address; at most `bytes_max`.
    pub address_bytes_max: u64,
    /// For one head: reading stops there.
    pub head_bytes_max: u64,
}

impl HeadsConfig {
    /// The limits by `[connections]`, with the limit of one head from `[gateway]`.
    pub(super) fn from_connections(config: &ConnectionsConfig, header_bytes_max: usize) -> Self {
        let bytes_max = config.head_budget_bytes;
        Self {
            bytes_max,
            address_bytes_max: config
                .head_address_bytes
                .unwrap_or_else(|| bytes_max.min(HEAD_ADDRESS_BYTES)),
            head_bytes_max: HEAD_BYTES_FACTOR * header_bytes_max as u64,
        }
    }
}

/// Reports limits that leave no room for one head.
pub(super) fn heads_fit(config: &ConnectionsConfig, one: &HeadsConfig, from: &Section<'_>) {
    const BUDGET: &str = "connections.head_budget_bytes";
    const ADDRESS: &str = "connections.head_address_bytes";
    let (all, one) = (config.head_budget_bytes, one.head_bytes_max);
    for (key, bytes) in [(BUDGET, Some(all)), (ADDRESS, config.head_address_bytes)] {
        match bytes {
            Some(bytes) if bytes < one => {
                let message =
                    format_args!("less than one head may have: give at least four times header_bytes_max ({one})");
                from.report_fault(key, &["gateway.header_bytes_max"], message);
            }
            Some(bytes) if bytes > all => {
                let message = format_args!("more than all heads may have: give at most head_budget_bytes ({all})");
                from.report_fault(key, &[BUDGET], message);
            }
            Some(_) | None => {}
        }
    }
}
