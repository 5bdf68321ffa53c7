//! Metrics of Responses over WebSocket.

use super::{declared::SocketMetrics, kinds::Counter};

/// What ended a WebSocket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SocketEnd {
    /// The client closed it, or its connection broke.
    Client,
    /// It carried no request for too long, or the client did not answer a ping.
    Idle,
    /// It reached its maximum age or its maximum number of requests.
    Lifetime,
    /// The process shuts down.
    Drain,
    /// Its key is no longer valid.
    Key,
    /// The client violated the WebSocket protocol or a limit of a message.
    Protocol,
    /// The client did not read what was sent to it, or read it too slowly.
    Slow,
    /// The client did not send a begun message in time.
    Late,
}

impl SocketEnd {
    const ALL: [Self; 8] = [
        Self::Client,
        Self::Idle,
        Self::Lifetime,
        Self::Drain,
        Self::Key,
        Self::Protocol,
        Self::Slow,
        Self::Late,
    ];

    const fn as_str(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Idle => "idle",
            Self::Lifetime => "lifetime",
            Self::Drain => "drain",
            Self::Key => "key",
            Self::Protocol => "protocol",
            Self::Slow => "slow",
            Self::Late => "late",
        }
    }
}

impl SocketMetrics {
    /// Creates the counters at zero, so that rates have a value before the first event.
    pub(super) fn create_at_zero(&self) {
        for end in SocketEnd::ALL {
            self.ended.with_labels([end.as_str().into()]).raise_to(0);
        }
        for is_found in [true, false] {
            self.continuation(is_found).raise_to(0);
        }
    }

    /// Records the end of a WebSocket that carried `turns` requests.
    pub(crate) fn record_end(&self, end: SocketEnd, turns: u32) {
        self.ended.with_labels([end.as_str().into()]).inc();
        self.turns_of_socket.observe(f64::from(turns));
    }

    /// Counts a request that continues a conversation of its WebSocket.
    pub(crate) fn record_continuation(&self, is_found: bool) {
        self.continuation(is_found).inc();
    }

    fn continuation(&self, is_found: bool) -> Counter {
        let state = if is_found { "found" } else { "gone" };
        self.continuations.with_labels([state.into()])
    }
}
