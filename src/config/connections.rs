//! `[connections]` and `[own_usage]`: what clients' connections and addresses may take.

use std::time::Duration;

use crate::domain::settings::{Section, number, seconds, settings, within};

/// How much memory a head takes for each byte that it may have, at most: over HTTP/2 its fields are decoded as they come.
const HEAD_BYTES_FACTOR: u64 = 4;
const HEAD_BUDGET_MAX: u64 = 1 << 40;
/// What heads of one address may hold unless it is said, in bytes.
const HEAD_ADDRESS_BYTES: u64 = 8 << 20;
const MILLION: usize = 1_000_000;

settings! {
    /// `[connections]`
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) struct ConnectionsConfig {
        /// Most connections to the gateway; further ones are closed at once. Fewer if the process may not open as many files: some
        /// are kept for the store, the providers, and /livez, /metrics and the admin socket, which answer however many clients there
        /// are.
        max: usize = number(16_384, 1..=MILLION).restart(),
        /// Most requests that run at a time, over all of these, HTTP/2 streams included; a further one gets 503. Fewer likewise.
        running_max: usize = number(16_384, 1..=MILLION),
        /// Most connections of one IP address (IPv6: one /64), to the gateway and to the public stability service each; at most half
        /// of all. [stability] trusted_proxies are exempt.
        per_address_max: usize = number(1024, 1..=MILLION).restart(),
        /// Longest time until HTTP can be spoken over a new connection.
        handshake("handshake_seconds"): Duration = seconds(10, 1..=60),
        /// Longest time until a new connection has sent its first byte.
        first_byte("first_byte_seconds"): Duration = seconds(10, 1..=600),
        /// Longest time from the first byte of a request's head to the last.
        head("head_seconds"): Duration = seconds(20, 1..=600),
        /// Memory for the heads of requests that have not come to their end, in bytes. Beyond it the largest give way, with 503 over
        /// HTTP/1.1; heads of up to 4096 bytes are always read, and do not count. At least four times [gateway] header_bytes_max.
        head_budget_bytes: u64 = number(64 << 20, 1..=HEAD_BUDGET_MAX).restart(),
        /// The same for one IP address (IPv6: one /64). Without it: 8 MiB, or all of head_budget_bytes where that is less.
        head_address_bytes: Option<u64> = within(1..=HEAD_BUDGET_MAX).optional(8 << 20).restart(),
        /// Most requests over one connection; the last answer says that it closes, HTTP/2 says GOAWAY.
        requests_max: u32 = number(10_000, 1..=1_000_000_000),
        /// HTTP/2: most concurrent streams of a connection.
        h2_streams_max: u32 = number(100, 1..=10_000),
        /// HTTP/2: most streams that a client may reset before weir has looked at them.
        h2_resets_max: usize = number(20, 1..=10_000),
    }
}

settings! {
    /// `[own_usage]`
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub(crate) struct OwnUsageConfig {
        /// Questions of one IP address (IPv6: one /64) in a minute; beyond it 429. Proxies in front of weir belong into [stability]
        /// trusted_proxies, or all that come through them are one.
        per_minute: u32 = number(60, 1..=1_000_000),
        /// Questions at once after a rest.
        burst: u32 = number(20, 1..=1_000_000),
        /// Most addresses remembered for that; beyond it those that asked longest ago are forgotten.
        addresses_max: usize = number(100_000, 1..=10 * MILLION),
    }
}

/// What heads of requests may hold that have not come to their end, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HeadsConfig {
    /// All of them.
    pub bytes_max: u64,
    /// Those of one address; no more than all.
    pub address_bytes_max: u64,
    /// One of them: no more of it is read.
    pub head_bytes_max: u64,
}

impl HeadsConfig {
    /// With the limit of one head, which `[gateway]` has.
    pub(super) fn of(config: &ConnectionsConfig, header_bytes_max: usize) -> Self {
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

/// Notes where there is no room for one head.
pub(super) fn heads_fit(config: &ConnectionsConfig, one: &HeadsConfig, from: &Section<'_>) {
    const BUDGET: &str = "connections.head_budget_bytes";
    const ADDRESS: &str = "connections.head_address_bytes";
    let (all, one) = (config.head_budget_bytes, one.head_bytes_max);
    for (key, bytes) in [(BUDGET, Some(all)), (ADDRESS, config.head_address_bytes)] {
        match bytes {
            Some(bytes) if bytes < one => {
                let message =
                    format_args!("less than one head may have, give at least four times header_bytes_max ({one})");
                from.wrong(key, &["gateway.header_bytes_max"], message);
            }
            Some(bytes) if bytes > all => {
                let message = format_args!("more than all heads may have, give at most head_budget_bytes ({all})");
                from.wrong(key, &[BUDGET], message);
            }
            Some(_) | None => {}
        }
    }
}
