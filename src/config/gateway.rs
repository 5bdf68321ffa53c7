//! `[gateway]`: the listener for clients and its limits.

use std::{net::SocketAddr, time::Duration};

use ipnet::IpNet;

use super::{
    bodies::BodiesConfig,
    kinds::{address, networks},
    tls::GatewayTlsConfig,
};
use crate::domain::{
    faults::pace::MinimumSpeed,
    keys::secret::KeyPrefix,
    settings::{flag, flat, number, seconds, settings, table, text},
};

const DAY_SECONDS: u64 = 86_400;
/// Maximum number of threads by default: each has its own connections to providers, which are cold if it gets few requests.
const THREADS_BY_DEFAULT_MAX: usize = 4;
/// Pingora's own limit for a header block, in bytes.
const HEADER_BYTES_CEILING: usize = 1_048_575;
/// Pingora's own limit for header fields.
const HEADER_COUNT_CEILING: usize = 256;

settings! {
    /// `[gateway]`
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub(crate) struct GatewayConfig {
        /// The address for clients, IP:PORT. Port 0 takes a free one, which is logged.
        listen: SocketAddr = address().or("127.0.0.1:8080").restart(),
        /// Threads that serve requests. Each serves the connections that it has accepted to their end, and has its own
        /// connections to providers. 0: one per core, but at most 4, which serve tens of thousands of requests per second; with
        /// more threads and few requests, a connection to a provider is more often cold.
        threads: usize = number(0, 0..=1024).map(or_one_per_core).restart(),
        /// The prefix of every service key: 1 to 16 of a-z and 0-9. Changing it invalidates all existing keys.
        key_prefix: KeyPrefix = text()
            .then(|text| KeyPrefix::new(&text).map_err(|error| error.to_string()))
            .or("weir")
            .restart(),
        /// Maximum nesting of a request body; deeper is 400.
        json_depth_max: usize = number(256, 1..=1024),
        /// Maximum number of references to provider state in one request (items, files, containers and the like; each is
        /// checked to belong to the account); more is 400.
        references_max: usize = number(1024, 1..=65_536),
        /// Whether the session that an agent names in its own header (such as x-claude-code-session-id) becomes a tag of the
        /// request, `session=ID`, in its row and for `weir log query --tag`, in addition to the tags of x-weir-tag. There are
        /// no daily sums by session.
        session_tag: bool = flag(false),
        /// Limits of request bodies.
        bodies: BodiesConfig = flat(),
        /// Maximum size of all request header fields, in bytes; larger is 431.
        header_bytes_max: usize = number(65_536, 1024..=HEADER_BYTES_CEILING),
        /// Maximum number of request header fields; more are 431.
        header_count_max: usize = number(100, 8..=HEADER_COUNT_CEILING),
        /// How long an idle client connection stays open.
        keepalive("keepalive_seconds"): Duration = seconds(75, 1..=DAY_SECONDS),
        /// Timeout for a client to take bytes that are ready for it.
        write("write_seconds"): Duration = seconds(60, 1..=DAY_SECONDS),
        /// How long running requests may go on after SIGTERM; then each answer is ended with its protocol's error, within some
        /// seconds.
        drain("drain_seconds"): Duration = seconds(600, 0..=DAY_SECONDS).restart(),
        /// Maximum number of concurrent token counts of one key, apart from all limits on generation; more are 429. Agents send
        /// them in bursts.
        count_tokens_concurrency: usize = number(64, 1..=65_536),
        /// Load balancers that send a PROXY protocol header (version 1 or 2) with the client's address, as ADDRESS/BITS or an
        /// address. Each of their connections must begin with one; other connections must not.
        proxy_protocol_from: Vec<IpNet> = networks().restart(),
        /// The listener's certificates, and a plain listener that redirects to it.
        tls: GatewayTlsConfig = table(),
    }
}

impl GatewayConfig {
    /// The minimum speed at which a client must read its answer.
    pub(crate) fn answer_pace(&self) -> MinimumSpeed {
        MinimumSpeed {
            wait_max: self.write,
            bytes_per_second_min: self.bodies.bytes_per_second_min,
        }
    }
}

fn or_one_per_core(given: usize) -> usize {
    match given {
        0 => std::thread::available_parallelism().map_or(1, |cores| cores.get().min(THREADS_BY_DEFAULT_MAX)),
        given => given,
    }
}
