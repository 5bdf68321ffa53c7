//! The settings of `[sockets]`: Responses over WebSocket.

use std::time::Duration;

use crate::domain::settings::{Section, flag, number, seconds, settings, within};

/// The maximum of a memory limit, in bytes.
const STATE_BYTES_CEILING: u64 = 1 << 40;
/// The share of one key in the memory for conversations, if it is not set: one part in this many.
const KEY_SHARE_DIVISOR: u64 = 4;

settings! {
    /// The section `[sockets]`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) struct SocketsConfig {
        /// Whether clients can open a WebSocket at /v1/responses. If false, they get 426 and continue with POST.
        enabled: bool = flag(true),
        /// Maximum number of sockets of one key on this node; further handshakes get 426. A socket also counts as a connection
        /// ([connections]).
        per_key_max: usize = number(64, 1..=65_536),
        /// Maximum number of requests that run on one socket at one time, each in another lane (`stream_id`). Further ones wait.
        running_max: usize = number(4, 1..=16),
        /// How often weir pings the client of a socket. A client that does not answer in this time is disconnected.
        ping("ping_seconds"): Duration = seconds(30, 1..=600),
        /// How long a socket stays open without a request.
        idle("idle_seconds"): Duration = seconds(1800, 1..=86_400),
        /// Maximum age of a socket; each ends up to a twelfth earlier, at random. A running request continues to its end.
        lifetime("lifetime_seconds"): Duration = seconds(3600, 1..=86_400),
        /// Maximum number of WebSockets to providers that one socket opens, for providers whose file says `websocket = true`. 0:
        /// its requests go to all providers by POST.
        provider_lines_max: usize = number(4, 0..=16),
        /// How long a WebSocket to a provider stays open without a request.
        provider_idle("provider_idle_seconds"): Duration = seconds(300, 1..=86_400),
        /// Memory for the conversations that sockets continue (`store: false`), in bytes. Beyond it, the one that was not used
        /// for longest is dropped, and its client sends it again.
        state_bytes_max: u64 = number(256 << 20, 0..=STATE_BYTES_CEILING).restart(),
        /// Memory for the conversations of one key, in bytes. If not set: a quarter of state_bytes_max.
        state_key_bytes: Option<u64> = within(0..=STATE_BYTES_CEILING).optional(64 << 20).restart(),
    } checked by state_fits
}

impl SocketsConfig {
    /// Returns the memory limit for the conversations of one key, in bytes; at most `state_bytes_max`.
    pub(crate) fn state_key_bytes_max(&self) -> u64 {
        self.state_key_bytes.unwrap_or(self.state_bytes_max / KEY_SHARE_DIVISOR)
    }
}

fn state_fits(read: SocketsConfig, from: &Section<'_>) -> SocketsConfig {
    let all = read.state_bytes_max;
    if read.state_key_bytes.is_some_and(|bytes| bytes > all) {
        let message = format_args!("larger than the limit for all conversations: give at most state_bytes_max ({all})");
        from.report_fault("state_key_bytes", &["state_bytes_max"], message);
    }
    read
}
