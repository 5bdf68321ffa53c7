//! Metrics of Responses over WebSocket.

use super::{declared::SocketMetrics, kinds::Counter};

/// The cause of the end of a WebSocket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SocketEnd {
    /// The client closed the WebSocket, or the connection broke.
    Client,
    /// The WebSocket carried no request for too long, or the client did not answer a ping.
    Idle,
    /// The WebSocket reached its maximum age or its maximum number of requests.
    Lifetime,
    /// The process shuts down, or the operator has disabled WebSockets.
    Drain,
    /// The WebSocket's key is no longer valid.
    Key,
    /// The client violated the WebSocket protocol or exceeded a limit for messages.
    Protocol,
    /// The client did not read messages, or read them too slowly.
    Slow,
    /// The client began a message but did not complete it in time.
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

/// The cause of the end of a WebSocket to a provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LineEnd {
    /// The client's WebSocket ended.
    Socket,
    /// The WebSocket carried no request for too long.
    Idle,
    /// The running request was abandoned, because its client disconnected or the request exceeded a time limit.
    Abandoned,
    /// The provider closed the WebSocket, or the connection broke.
    Provider,
    /// The provider violated the WebSocket protocol or exceeded a limit for messages.
    Protocol,
    /// The provider began a response without a request.
    Unexpected,
    /// The provider did not answer a ping.
    Silent,
}

impl LineEnd {
    const ALL: [Self; 7] = [
        Self::Socket,
        Self::Idle,
        Self::Abandoned,
        Self::Provider,
        Self::Protocol,
        Self::Unexpected,
        Self::Silent,
    ];

    const fn as_str(self) -> &'static str {
        match self {
            Self::Socket => "socket",
            Self::Idle => "idle",
            Self::Abandoned => "abandoned",
            Self::Provider => "provider",
            Self::Protocol => "protocol",
            Self::Unexpected => "unexpected",
            Self::Silent => "silent",
        }
    }
}

/// The reason why a provider has not accepted the handshake of a WebSocket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HandshakeRefusal {
    /// Status 426: the provider only serves POST.
    UpgradeRequired,
    /// Status 404 or 405: the provider does not have this endpoint.
    NotServed,
    /// Status 401, 402 or 403: the provider refuses the credential.
    Credential,
    /// Status 429: the provider limits the credential.
    Limited,
    /// A status of 500 or more.
    Failed,
    /// Any other status, or an answer that does not match the handshake.
    Other,
    /// The connection ended before the answer.
    Broken,
    /// The answer did not arrive in time.
    Late,
}

impl HandshakeRefusal {
    const ALL: [Self; 8] = [
        Self::UpgradeRequired,
        Self::NotServed,
        Self::Credential,
        Self::Limited,
        Self::Failed,
        Self::Other,
        Self::Broken,
        Self::Late,
    ];

    /// Converts the HTTP status of an answer to the reason of the refusal.
    pub(crate) const fn from_status(status: u16) -> Self {
        match status {
            426 => Self::UpgradeRequired,
            404 | 405 => Self::NotServed,
            401..=403 => Self::Credential,
            429 => Self::Limited,
            500.. => Self::Failed,
            _ => Self::Other,
        }
    }

    /// Returns the label of the refusal in metrics and messages.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::UpgradeRequired => "upgrade_required",
            Self::NotServed => "not_served",
            Self::Credential => "credential",
            Self::Limited => "limited",
            Self::Failed => "failed",
            Self::Other => "other",
            Self::Broken => "broken",
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
        for end in LineEnd::ALL {
            self.lines_ended.with_labels([end.as_str().into()]).raise_to(0);
        }
        for why in HandshakeRefusal::ALL {
            self.handshakes_refused.with_labels([why.as_str().into()]).raise_to(0);
        }
    }

    /// Records the end of a WebSocket to a provider.
    pub(crate) fn record_line_end(&self, end: LineEnd) {
        self.lines_ended.with_labels([end.as_str().into()]).inc();
    }

    /// Records that a provider has not accepted a handshake.
    pub(crate) fn record_handshake_refused(&self, why: HandshakeRefusal) {
        self.handshakes_refused.with_labels([why.as_str().into()]).inc();
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
