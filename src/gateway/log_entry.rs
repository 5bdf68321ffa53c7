//! A request's line in the access log and its metrics, written exactly once.

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

/// Where finished requests are reported.
#[derive(Debug)]
pub(crate) struct Sinks {
    pub access_log: AccessLog,
    /// The metrics registry.
    pub metrics: Arc<Metrics>,
}

/// The access-log line of a request that is not over. Three places write to it: the head, the admission and the end.
#[derive(Debug)]
pub(crate) struct LogEntry {
    /// The record so far. [`LogEntry::close`] adds end and latency.
    pub record: RequestRecord,
    /// When the request's head arrived.
    pub started: Instant,
    /// The endpoint that the last attempt went to; `None` without an attempt.
    pub endpoint: Option<Arc<Endpoint>>,
    /// The cause of a failure, for the diagnostic log: a name out of a closed set.
    pub cause: Option<&'static str>,
    sinks: Arc<Sinks>,
    written: bool,
}

impl LogEntry {
    /// Opens the record of a request that has just arrived.
    pub(crate) fn open(sinks: Arc<Sinks>, request_id: SmolStr, started: Instant, time_unix_ms: i64) -> Self {
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
            sinks,
            written: false,
        }
    }

    /// Names the key of the request and its account.
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
        failure_log::of_request(record, end, self.cause);
        let series = self.endpoint.as_ref().map(|endpoint| &endpoint.series);
        self.sinks.metrics.record_request(record, series);
        self.sinks.access_log.write(record);
    }
}

/// Whole milliseconds from `start` to `end`; 0 if `end` is earlier.
pub(crate) fn millis_between(start: Instant, end: Instant) -> u64 {
    u64::try_from(end.saturating_duration_since(start).as_millis()).unwrap_or(u64::MAX)
}
