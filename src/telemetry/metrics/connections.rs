//! Metrics of clients' connections: how many there are, and why weir closed some.

use prometheus::{IntCounterVec, IntGaugeVec};

use super::{gauge_guard::GaugeGuard, maker::Maker};
use crate::domain::wire::http1::head::HeadFault;

/// The listeners that clients connect to.
const LISTENERS: [&str; 3] = ["gateway", "stability", "redirect"];

pub(super) struct Connections {
    open: IntGaugeVec,
    closed: IntCounterVec,
}

impl Connections {
    pub(super) fn new(make: &Maker<'_>) -> Result<Self, prometheus::Error> {
        let connections = Self {
            open: make.gauges("weir_connections", "Connections of clients.", &["listener"])?,
            closed: make.counters(
                "weir_connections_closed_total",
                "Connections of clients that weir closed for going beyond a limit or the protocol.",
                &["listener", "reason"],
            )?,
        };
        for listener in LISTENERS {
            connections.open.with_label_values(&[listener]);
            let faults = HeadFault::ALL.into_iter().map(CloseReason::Head);
            for reason in CloseReason::LIMITS.into_iter().chain(faults) {
                connections.closed.with_label_values(&[listener, reason.as_str()]);
            }
        }
        Ok(connections)
    }
}

/// Why weir closes a client's connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CloseReason {
    /// There are as many as there may be.
    TooMany,
    /// It had asked for nothing when there was no other place for a new one.
    GaveWay,
    /// Its address has as many as it may have.
    TooManyOfAddress,
    /// HTTP could not be spoken over it in time, or at all: TLS, the PROXY header.
    Handshake,
    /// Its first byte did not come.
    Silent,
    /// It brought no further request.
    Idle,
    /// A head did not come in time.
    HeadLate,
    /// A head that had not come to its end gave way: there was no memory for it beside others.
    HeadGaveWay,
    /// A head was refused.
    Head(HeadFault),
    /// A chunked body did not follow its framing.
    ChunksInvalid,
    /// An answer was not taken, or too slowly.
    AnswerUntaken,
    /// It carried as many requests as it may.
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
        Self::HeadGaveWay,
        Self::ChunksInvalid,
        Self::AnswerUntaken,
        Self::Requests,
    ];

    const fn as_str(self) -> &'static str {
        match self {
            Self::TooMany => "too_many",
            Self::GaveWay => "gave_way",
            Self::TooManyOfAddress => "too_many_of_address",
            Self::Handshake => "handshake",
            Self::Silent => "silent",
            Self::Idle => "idle",
            Self::HeadLate => "head_late",
            Self::HeadGaveWay => "head_budget_exhausted",
            Self::Head(fault) => fault.reason(),
            Self::ChunksInvalid => "chunks_invalid",
            Self::AnswerUntaken => "answer_untaken",
            Self::Requests => "requests",
        }
    }
}

/// The connections of one listener.
#[derive(Clone, Debug)]
pub(crate) struct ListenerFigures {
    listener: &'static str,
    open: IntGaugeVec,
    closed: IntCounterVec,
}

impl Connections {
    pub(super) fn listener(&self, listener: &'static str) -> ListenerFigures {
        ListenerFigures {
            listener,
            open: self.open.clone(),
            closed: self.closed.clone(),
        }
    }
}

impl ListenerFigures {
    /// A connection is open until the guard is dropped.
    pub(crate) fn opened(&self) -> GaugeGuard {
        GaugeGuard::new(&self.open.with_label_values(&[self.listener]))
    }

    /// Counts a connection that weir closes.
    pub(crate) fn closed(&self, reason: CloseReason) {
        self.closed.with_label_values(&[self.listener, reason.as_str()]).inc();
    }
}
