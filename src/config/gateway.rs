//! `[gateway]`: the listener for clients and its limits.

use std::{net::SocketAddr, time::Duration};

use ipnet::IpNet;

use super::{
    bodies::BodiesConfig,
    kinds::{address, networks},
    tls::GatewayTlsConfig,
};
use crate::domain::{
    faults::pace::PaceLimit,
    keys::secret::KeyPrefix,
    settings::{flag, flat, number, seconds, settings, table, text},
};

const DAY_SECONDS: u64 = 86_400;
/// The most threads that carry requests where none are named: each has connections to providers of its own, which are cold where
/// few requests come to it.
const THREADS_BY_DEFAULT_MAX: usize = 4;
/// Pingora's own limit for a header block, in bytes.
const HEADER_BYTES_CEILING: usize = 1_048_575;
/// Pingora's own limit for header fields.
const HEADER_COUNT_CEILING: usize = 256;

settings! {
    /// `[gateway]`
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub(crate) struct GatewayConfig {
        /// Where clients connect, IP:PORT. Port 0 takes a free one, which is logged.
        listen: SocketAddr = address().or("127.0.0.1:8080").restart(),
        /// Threads that carry requests. Each serves the connections that it has accepted to their end, and keeps connections to
        /// providers of its own. 0: one per core, but no more than 4, which carry tens of thousands of requests a second: with more
        /// threads a provider's connection is more often cold where there are few requests.
        threads: usize = number(0, 0..=1024).map(or_one_per_core).restart(),
        /// What every service key begins with: 1 to 16 of a-z and 0-9. Changing it makes all keys given out before unknown.
        key_prefix: KeyPrefix = text()
            .then(|text| KeyPrefix::new(&text).map_err(|error| error.to_string()))
            .or("weir")
            .restart(),
        /// Deepest nesting of a request body; deeper is 400.
        json_depth_max: usize = number(256, 1..=1024),
        /// How much of what lies at a provider's account one request may name (items, files, containers and the like; each is
        /// looked up as the account's own); more is 400.
        references_max: usize = number(1024, 1..=65_536),
        /// Whether the session that an agent names in a header of its own (such as x-claude-code-session-id) is a tag of the
        /// request, `session=ID`: in its row and for `weir log query --tag`, beside the tags of x-weir-tag. No daily sums are kept
        /// of sessions.
        session_tag: bool = flag(false),
        /// What request bodies may take.
        bodies: BodiesConfig = flat(),
        /// Largest block of request header fields, in bytes; larger is 431.
        header_bytes_max: usize = number(65_536, 1024..=HEADER_BYTES_CEILING),
        /// Most request header fields; more are 431.
        header_count_max: usize = number(100, 8..=HEADER_COUNT_CEILING),
        /// How long an idle client connection stays open.
        keepalive("keepalive_seconds"): Duration = seconds(75, 1..=DAY_SECONDS),
        /// Longest wait for a client to take bytes that are ready for it.
        write("write_seconds"): Duration = seconds(60, 1..=DAY_SECONDS),
        /// How long running requests may take to end after SIGTERM; then each answer ends with its protocol's error, within some
        /// seconds.
        drain("drain_seconds"): Duration = seconds(600, 0..=DAY_SECONDS).restart(),
        /// How many requests that count tokens one key may have under way, apart from all limits on generation; more are 429. Agents
        /// send them in bursts.
        count_tokens_concurrency: usize = number(64, 1..=65_536),
        /// Load balancers that pass connections on with a header of the PROXY protocol (version 1 or 2), as ADDRESS/BITS or an
        /// address: it tells the client's address. Each of their connections must begin with one; those of others must not.
        proxy_protocol_from: Vec<IpNet> = networks().restart(),
        /// The listener's certificates, and a plain listener that redirects to it.
        tls: GatewayTlsConfig = table(),
    }
}

impl GatewayConfig {
    /// The least speed at which a client takes its answer.
    pub(crate) fn answer_pace(&self) -> PaceLimit {
        PaceLimit {
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
