//! `[upstream]` and `[retry]`: how providers are reached.

use std::{path::PathBuf, time::Duration};

use super::kinds::path;
use crate::domain::settings::{flag, millis, number, seconds, settings};

const DAY_SECONDS: u64 = 86_400;

settings! {
    /// `[upstream]`
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub(crate) struct UpstreamConfig {
        /// Longest wait for a connection to a provider, TLS included, whichever address family it is made at.
        connect("connect_ms"): Duration = millis(3000, 1..=600_000),
        /// Longest wait for the first byte of a streamed answer.
        first_byte("first_byte_seconds"): Duration = seconds(120, 1..=DAY_SECONDS),
        /// Longest wait for the first byte of a unary answer, which is generated as a whole before it begins.
        first_byte_unary("first_byte_unary_seconds"): Duration = seconds(600, 1..=DAY_SECONDS),
        /// How long the head of a success waits for the first event of a stream or for a body in one piece. Until then the client has
        /// nothing of the answer, so a provider that breaks off or says an error is one that has failed, and the next one is asked.
        head_wait("head_wait_seconds"): Duration = seconds(5, 1..=60),
        /// Longest wait for the rest of an error answer whose head has come; then the client gets its status without it.
        error_body("error_body_seconds"): Duration = seconds(5, 1..=60),
        /// Longest silence within an answer.
        idle("idle_seconds"): Duration = seconds(300, 1..=DAY_SECONDS),
        /// Longest duration of a request at the provider.
        total("total_seconds"): Duration = seconds(3600, 1..=DAY_SECONDS),
        /// How long an unused provider connection is kept. Stay below the provider's own limit.
        pool_idle("pool_idle_seconds"): Duration = seconds(50, 1..=DAY_SECONDS),
        /// Most unused provider connections that are kept: each of [gateway] threads keeps its part.
        pool_size: usize = number(256, 1..=65_536).restart(),
        /// How often a connect that failed is tried again, at another address of the provider where there is one.
        connect_retries: usize = number(1, 0..=10),
        /// Whether HTTP/2 is spoken with providers that offer it in the TLS handshake. A connection still carries one request at a
        /// time, so that a time limit, or a connection that breaks, ends that request alone; at most 256 KiB of an answer wait for a
        /// slow client. HTTP/1.1 costs less here: this is for networks and providers that want HTTP/2.
        http2: bool = flag(false),
        /// Certificates trusted beside the platform's, PEM.
        ca_file: Option<PathBuf> = path().optional("ca.pem").restart(),
        /// How often the providers' names are resolved. The last good addresses are kept.
        resolve("resolve_seconds"): Duration = seconds(30, 1..=DAY_SECONDS).restart(),
        /// Longest wait for a name to resolve.
        resolve_timeout("resolve_timeout_ms"): Duration = millis(2000, 1..=60_000).restart(),
        /// An answer may be read to its end although its client has left, so that its usage is known ([on_client_gone] of the
        /// provider's file): this many at a time. Beyond it the provider is cut off, and what is known by then is billed.
        client_gone_finish_max: usize = number(256, 0..=1_000_000).restart(),
        /// The same: for this long after the client has left, besides the limits above.
        client_gone_finish("client_gone_finish_seconds"): Duration = seconds(600, 1..=DAY_SECONDS),
    }
}

settings! {
    /// `[retry]`
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) struct RetryConfig {
        /// Whether a request also goes on to the next provider when the first gives no answer in time (first_byte_seconds,
        /// first_byte_unary_seconds) or closes the connection before one. The first may have done the work and bill it to you; the
        /// client is charged for the answer it gets, once. Without it that request fails (504, 502), and later ones avoid the provider.
        after_timeout: bool = flag(false),
    }
}
