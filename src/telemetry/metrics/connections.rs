//! Metrics of clients' connections: how many are open, and for which reasons weir closed connections.

use super::{
    declared::ConnectionMetrics,
    kinds::{CounterFamily, GaugeFamily, GaugeGuard, Label},
};
use crate::domain::wire::http1::head::HeadFault;

/// The listeners to which clients connect.
const LISTENERS: [&str; 3] = ["gateway", "stability", "redirect"];

impl ConnectionMetrics {
    /// Creates the metrics of each listener and reason at zero, so that rates have a value before the first event.
    pub(super) fn create_at_zero(&self) {
        for listener in LISTENERS {
            self.open.with_labels([listener.into()]).set(0);
            let faults = HeadFault::ALL.into_iter().map(CloseReason::Head);
            for reason in CloseReason::LIMITS.into_iter().chain(faults) {
                self.closed
                    .with_labels([listener.into(), reason.as_str().into()])
                    .raise_to(0);
            }
        }
    }

    /// The connection metrics of one listener.
    pub(super) fn listener(&self, listener: &'static str) -> ListenerFigures {
        ListenerFigures {
            listener,
            open: self.open.clone(),
            closed: self.closed.clone(),
        }
    }

    /// Sets the metric of the expiry of all certificates in use. Call it in a sampler. If several certificates have the same name
    /// and kind of key, the earliest expiry counts.
    pub(crate) fn set_certificate_ends(&self, all: impl Iterator<Item = CertificateEnd>) {
        self.certificate_end.clear();
        for one in all {
            let labels = [one.listener.into(), Label::configured(&one.name), one.key.into()];
            self.certificate_end.with_labels(labels).lower_to(one.until);
        }
    }
}

/// The expiry of a certificate that a listener uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CertificateEnd {
    /// The configuration section of the listener.
    pub listener: &'static str,
    /// The first of the certificate's names.
    pub name: String,
    /// The kind of the certificate's key.
    pub key: &'static str,
    /// The last second in which the certificate is valid, in seconds since the Unix epoch.
    pub until: i64,
}

/// The reason why weir closes a client's connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CloseReason {
    /// The maximum number of connections is open already.
    TooMany,
    /// The connection carried no request, and made room for a new connection.
    GaveWay,
    /// The client's address already has its maximum number of connections.
    TooManyOfAddress,
    /// The TLS handshake or the PROXY header failed or took too long.
    Handshake,
    /// The first byte of the connection did not arrive in time.
    Silent,
    /// No further request arrived on the connection in time.
    Idle,
    /// The head of a request was not complete in time.
    HeadLate,
    /// An incomplete head was dropped, because the memory for heads was used up.
    HeadBudgetExhausted,
    /// The head of a request was refused.
    Head(HeadFault),
    /// The chunked framing of a body was malformed.
    ChunksInvalid,
    /// The client did not read an answer, or read it too slowly.
    AnswerUntaken,
    /// The connection carried its maximum number of requests.
    Requests,
}

impl CloseReason {
    const LIMITS: [Self; 11] = [
        Self::TooMany,
        Self::GaveWay,
        Self::TooManyOfAddress,
        Self::Handshake,
        Self::Silent,
        Self::Idle,
        Self::HeadLate,
        Self::HeadBudgetExhausted,
        Self::ChunksInvalid,
        Self::AnswerUntaken,
        Self::Requests,
    ];

    const fn as_str(self) -> &'static str {
        match self {
            Self::TooMany => "too_many",
            Self::GaveWay => "gave_way",
            Self::TooManyOfAddress => "too_many_from_address",
            Self::Handshake => "handshake",
            Self::Silent => "first_byte_timeout",
            Self::Idle => "idle",
            Self::HeadLate => "head_timeout",
            Self::HeadBudgetExhausted => "head_budget_exhausted",
            Self::Head(fault) => fault.reason(),
            Self::ChunksInvalid => "chunks_invalid",
            Self::AnswerUntaken => "write_timeout",
            Self::Requests => "requests",
        }
    }
}

/// The connection metrics of one listener.
#[derive(Clone, Debug)]
pub(crate) struct ListenerFigures {
    listener: &'static str,
    open: GaugeFamily<1>,
    closed: CounterFamily<2>,
}

impl ListenerFigures {
    /// Counts a connection as open until the returned guard is dropped.
    pub(crate) fn on_open(&self) -> GaugeGuard {
        self.open.with_labels([self.listener.into()]).guard()
    }

    /// Counts a connection that weir closes for this reason.
    pub(crate) fn record_close(&self, reason: CloseReason) {
        self.closed
            .with_labels([self.listener.into(), reason.as_str().into()])
            .inc();
    }
}
