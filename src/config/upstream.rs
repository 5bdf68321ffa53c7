//! `[upstream]` and `[retry]`: how providers are reached.

use std::{path::PathBuf, time::Duration};

use super::kinds::path;
use crate::domain::settings::{flag, millis, number, seconds, settings};

const UPSTREAM_SECONDS_MAX: u64 = 86_400;

settings! {
    /// `[upstream]`
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub(crate) struct UpstreamConfig {
        /// Timeout for a connection to a provider, TLS included, over IPv4 or IPv6.
        connect("connect_ms"): Duration = millis(3000, 1..=600_000),
        /// Timeout for the first byte of a streamed answer.
        first_byte("first_byte_seconds"): Duration = seconds(120, 1..=UPSTREAM_SECONDS_MAX),
        /// Timeout for the first byte of a unary answer, which is generated as a whole before it begins.
        first_byte_unary("first_byte_unary_seconds"): Duration = seconds(600, 1..=UPSTREAM_SECONDS_MAX),
        /// How long the head of a success is withheld for the first event of a stream, or for the body of a unary answer. Until
        /// then the client has nothing of the answer, so a provider that breaks off or sends an error counts as failed, and the
        /// next one is tried.
        head_wait("head_wait_seconds"): Duration = seconds(5, 1..=60),
        /// Timeout for the body of an error answer; then the client gets its status without it.
        error_body("error_body_seconds"): Duration = seconds(5, 1..=60),
        /// Maximum silence within an answer.
        idle("idle_seconds"): Duration = seconds(300, 1..=UPSTREAM_SECONDS_MAX),
        /// Maximum duration of a request at the provider.
        total("total_seconds"): Duration = seconds(3600, 1..=UPSTREAM_SECONDS_MAX),
        /// How long an unused provider connection is kept. Stay below the provider's own limit.
        pool_idle("pool_idle_seconds"): Duration = seconds(50, 1..=UPSTREAM_SECONDS_MAX),
        /// Maximum number of unused provider connections; each of [gateway] threads keeps its share.
        pool_size: usize = number(256, 1..=65_536).restart(),
        /// How often a failed connect is retried, at another address of the provider if it has one.
        connect_retries: usize = number(1, 0..=10),
        /// Whether to use HTTP/2 with providers that offer it in the TLS handshake. A connection still carries one request at a
        /// time, so that a timeout or a broken connection ends only that request; at most 256 KiB of an answer wait for a slow
        /// client. HTTP/1.1 is cheaper: use this only for networks or providers that require HTTP/2.
        http2: bool = flag(false),
        /// Certificates trusted in addition to the platform's, PEM.
        ca_file: Option<PathBuf> = path().optional("ca.pem").restart(),
        /// How often the providers' names are resolved. The last good addresses are kept.
        resolve("resolve_seconds"): Duration = seconds(30, 1..=UPSTREAM_SECONDS_MAX).restart(),
        /// Timeout for resolving a name.
        resolve_timeout("resolve_timeout_ms"): Duration = millis(2000, 1..=60_000).restart(),
        /// Maximum number of detached answers: those that are read to their end although the client has left, so that their
        /// usage is known ([on_client_gone] of the provider's file). Beyond it the provider's answer is ended when its client
        /// leaves, and what is known by then is billed.
        client_gone_finish_max: usize = number(256, 0..=1_000_000).restart(),
        /// Maximum time for a detached answer after its client has left, in addition to the limits above.
        client_gone_finish("client_gone_finish_seconds"): Duration = seconds(600, 1..=UPSTREAM_SECONDS_MAX),
    }
}

settings! {
    /// `[retry]`
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) struct RetryConfig {
        /// Whether a request also goes on to the next provider if the first does not answer in time (first_byte_seconds,
        /// first_byte_unary_seconds) or closes the connection before an answer. The first may have done the work and bill you
        /// for it; the client is charged once, for the answer it gets. Without this, the request fails (504, 502), and later
        /// ones avoid the provider.
        after_timeout: bool = flag(false),
    }
}
