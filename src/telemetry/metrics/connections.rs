//! Metrics of clients' connections: how many there are, and why weir closed some.

use super::{
    declared::Connections,
    kinds::{Counters, GaugeGuard, Gauges, Label},
};
use crate::domain::wire::http1::head::HeadFault;

/// The listeners that clients connect to.
const LISTENERS: [&str; 3] = ["gateway", "stability", "redirect"];

impl Connections {
    /// Shows a zero for each listener and reason, so that rates see it before the first event.
    pub(super) fn begin(&self) {
        for listener in LISTENERS {
            self.open.of([listener.into()]).set(0);
            let faults = HeadFault::ALL.into_iter().map(CloseReason::Head);
            for reason in CloseReason::LIMITS.into_iter().chain(faults) {
                self.closed.of([listener.into(), reason.as_str().into()]).reach(0);
            }
        }
    }

    /// The figures of one listener.
    pub(super) fn listener(&self, listener: &'static str) -> ListenerFigures {
        ListenerFigures {
            listener,
            open: self.open.clone(),
            closed: self.closed.clone(),
        }
    }

    /// Shows the ends of the certificates in use, all of them; for use in a sampler. Those of one name and kind count as the first
    /// to end.
    pub(crate) fn show_certificates(&self, all: impl Iterator<Item = CertificateEnd>) {
        self.certificate_end.clear();
        for one in all {
            let labels = [one.listener.into(), Label::configured(&one.name), one.key.into()];
            self.certificate_end.of(labels).lower(one.until);
        }
    }
}

/// The end of a certificate that a listener shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CertificateEnd {
    /// The listener's section.
    pub listener: &'static str,
    /// The first of its names.
    pub name: String,
    /// The kind of its key.
    pub key: &'static str,
    /// The last second of its validity, since the Unix epoch.
    pub until: i64,
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
    open: Gauges<1>,
    closed: Counters<2>,
}

impl ListenerFigures {
    /// A connection is open until the guard is dropped.
    pub(crate) fn opened(&self) -> GaugeGuard {
        self.open.of([self.listener.into()]).guard()
    }

    /// Counts a connection that weir closes.
    pub(crate) fn closed(&self, reason: CloseReason) {
        self.closed.of([self.listener.into(), reason.as_str().into()]).inc();
    }
}
