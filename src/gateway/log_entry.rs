//! A request's line in the access log and its metrics, written exactly once; and the log lines about failed requests.

use std::{sync::Arc, time::Instant};

use smol_str::SmolStr;

use crate::{
    domain::{faults::end::End, keys::key::KeyRecord},
    edges::clock,
    gateway::failure_log,
    providers::endpoint::Endpoint,
    telemetry::{
        access_log::{AccessLog, RequestRecord},
        metrics::Metrics,
    },
};

/// The access log and the metrics, which finished requests are reported to.
#[derive(Debug)]
pub(crate) struct RequestReporters {
    pub access_log: AccessLog,
    /// The metrics registry.
    pub metrics: Arc<Metrics>,
}

/// The access-log line of a request that has not ended. The head, the admission and the end write to it.
#[derive(Debug)]
pub(crate) struct LogEntry {
    /// The record so far. [`LogEntry::close`] adds the end and the latency.
    pub record: RequestRecord,
    /// When the request's head arrived.
    pub started: Instant,
    /// The endpoint that the last attempt went to; `None` without an attempt.
    pub endpoint: Option<Arc<Endpoint>>,
    /// The cause of a failure, for the diagnostic log; from a closed set.
    pub cause: Option<&'static str>,
    reporters: Arc<RequestReporters>,
    written: bool,
}

impl LogEntry {
    /// Opens the record of a request that has just arrived.
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

    /// Sets the key of the request and its account.
    pub(crate) fn name_key(&mut self, key: &KeyRecord) {
        self.record.key_id = Some(key.id.as_str().into());
        self.record.account = Some(key.account.clone());
    }

    /// Whether the record is written.
    pub(crate) fn is_closed(&self) -> bool {
        self.written
    }

    /// Writes the record to log and metrics. Later calls do nothing.
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
        failure_log::log_failed_request(record, end, self.cause);
        let series = self.endpoint.as_ref().map(|endpoint| &endpoint.series);
        self.reporters.metrics.record_request(record, series);
        self.reporters.access_log.write(record);
    }
}

/// Whole milliseconds from `start` to `end`; 0 if `end` is earlier.
pub(crate) fn millis_between(start: Instant, end: Instant) -> u64 {
    u64::try_from(end.saturating_duration_since(start).as_millis()).unwrap_or(u64::MAX)
}
