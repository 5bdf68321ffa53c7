//! Writes the access-log line and the metrics of each request exactly once, and writes the lines about failed requests in the
//! diagnostic log.

use std::{net::SocketAddr, sync::Arc, time::Instant};

use smol_str::SmolStr;

use crate::{
    domain::{
        faults::{End, refusal::Refusal},
        keys::KeyRecord,
        wire::protocol::Break,
    },
    edges::clock,
    providers::Endpoint,
    telemetry::{
        access_log::{AccessLog, RequestRecord},
        metrics::Metrics,
    },
};

/// The access log and the metrics, which record each finished request.
#[derive(Debug)]
pub(crate) struct RequestReporters {
    pub access_log: AccessLog,
    /// The metrics registry.
    pub metrics: Arc<Metrics>,
}

/// The access-log line of a request that has not ended. The line is filled in at three stages of the request: when its head is
/// read, at its admission, and at its end.
#[derive(Debug)]
pub(crate) struct LogEntry {
    /// The contents of the line so far. [`LogEntry::close`] adds the end and the latency.
    pub record: RequestRecord,
    /// When the request's head arrived.
    pub started: Instant,
    /// The endpoint of the most recent attempt; `None` before the first attempt.
    pub endpoint: Option<Arc<Endpoint>>,
    /// The cause of a failure for the diagnostic log, one of a fixed set of names; `None` if nothing has failed.
    pub cause: Option<&'static str>,
    reporters: Arc<RequestReporters>,
    written: bool,
}

impl LogEntry {
    /// Opens the line of a request that has just arrived.
    pub(crate) fn open(
        reporters: Arc<RequestReporters>,
        request_id: SmolStr,
        started: Instant,
        time_unix_ms: i64,
    ) -> Self {
        let record = RequestRecord {
            time_unix_ms,
            request_id,
            ..RequestRecord::default()
        };
        Self {
            record,
            started,
            endpoint: None,
            cause: None,
            reporters,
            written: false,
        }
    }

    /// Sets the request's key and the key's account.
    pub(crate) fn name_key(&mut self, key: &KeyRecord) {
        self.record.key_id = Some(key.id.as_str().into());
        self.record.account = Some(key.account.clone());
    }

    /// Counts the losses of a translated request. The labels of each loss are the client's protocol, the provider's protocol and
    /// the verdict on the loss, for example `dropped`.
    pub(crate) fn count_losses(&self, losses: impl Iterator<Item = [&'static str; 3]>) {
        let family = &self.reporters.metrics.requests.translation_losses;
        for labels in losses {
            family.with_labels(labels.map(Into::into)).inc();
        }
    }

    /// Whether the line has been written.
    pub(crate) fn is_closed(&self) -> bool {
        self.written
    }

    /// Writes the line to the access log and records it in the metrics. Later calls do nothing.
    pub(crate) fn close(&mut self, end: &End) {
        if self.written {
            return;
        }
        self.written = true;
        let record = &mut self.record;
        record.outcome = end.label();
        if let End::Refused(refusal) = end {
            record.status = refusal.status();
            record.refusal = Some(refusal.reason());
        }
        record.latency_ms = millis_between(self.started, clock::instant());
        log_failed_request(record, end, self.cause);
        let series = self.endpoint.as_ref().map(|endpoint| &endpoint.series);
        self.reporters.metrics.record_request(record, series);
        self.reporters.access_log.write(record);
    }
}

/// Returns the whole milliseconds from `start` to `end`; 0 if `end` is earlier.
pub(crate) fn millis_between(start: Instant, end: Instant) -> u64 {
    u64::try_from(end.saturating_duration_since(start).as_millis()).unwrap_or(u64::MAX)
}

/// The cause of a request that ended in a panic. The panic hook has logged the panic and its location.
pub(crate) const PANICKED: &str = "panicked";

/// Logs the end of a failed request in one line. The line is composed by weir and contains no byte that a client or provider
/// sent. Pingora's own log lines are off, because they quote such bytes and report a disconnected client as an error. `cause` is
/// one of a fixed set of names.
///
/// Warnings and errors are for events on which an operator must act. A provider that occasionally breaks off or times out is not
/// such an event; the metric `weir_requests_total` counts it. Refusals, disconnected clients and error answers of the provider
/// are in the access log only.
pub(crate) fn log_failed_request(record: &RequestRecord, end: &End, cause: Option<&'static str>) {
    let request_id = record.request_id.as_str();
    let provider = record.provider.as_deref().unwrap_or("none");
    let cause = cause.unwrap_or("none");
    match end {
        End::Broken(Break::Internal) | End::Refused(Refusal::Internal) if cause == PANICKED => {}
        End::Broken(Break::Internal) | End::Refused(Refusal::Internal) => {
            tracing::error!(
                request_id,
                provider,
                cause,
                "a request failed because of a bug in weir; report this log line to the developers of weir"
            );
        }
        End::Refused(Refusal::ProviderUnreachable) => {
            tracing::warn!(
                request_id,
                provider,
                cause,
                attempts = record.attempts,
                "cannot connect to the provider; the request is refused with status 503"
            );
        }
        End::Broken(Break::ProviderTimeout) | End::Refused(Refusal::ProviderTimeout) => {
            tracing::info!(
                request_id,
                provider,
                cause,
                "a request failed: the provider did not answer in time"
            );
        }
        End::Broken(Break::ProviderCut | Break::ProviderEnded) | End::Refused(Refusal::ProviderBroken) => {
            tracing::info!(
                request_id,
                provider,
                cause,
                "a request failed: the provider's answer was unusable or incomplete"
            );
        }
        End::Complete
        | End::ProviderError
        | End::InBandError
        | End::ClientLeft
        | End::Broken(Break::LimitReached | Break::Stopped)
        | End::Refused(_) => {}
    }
}

/// Logs a failed connect to `backend`, after which another attempt follows.
pub(crate) fn log_failed_connect(request_id: &str, provider: &str, backend: Option<SocketAddr>, cause: &'static str) {
    let backend = backend.map(tracing::field::display);
    tracing::warn!(
        request_id,
        provider,
        backend,
        cause,
        "cannot connect to a backend of the provider; another attempt follows"
    );
}
