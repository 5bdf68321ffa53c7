//! A request's line in the access log and its metrics, written exactly once: by call, or by Drop.

use std::{sync::Arc, time::Instant};

use smol_str::SmolStr;

use crate::{
    domain::faults::{outcome::Outcome, refusal::Refusal},
    edges::clock,
    gateway::failure_log,
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

/// The log record of a request that is not over.
#[derive(Debug)]
pub(crate) struct Entry {
    /// The record so far. [`Entry::close`] adds outcome and latency.
    pub record: RequestRecord,
    /// When the request's head arrived.
    pub started: Instant,
    /// What went wrong, if anything: a name out of a closed set.
    pub cause: Option<&'static str>,
    sinks: Arc<Sinks>,
    written: bool,
}

impl Entry {
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
            cause: None,
            sinks,
            written: false,
        }
    }

    /// Closes the record of a request that weir has refused.
    pub(crate) fn refused(&mut self, refusal: &Refusal) {
        self.record.status = refusal.status();
        self.record.refusal = Some(refusal.reason());
        let outcome = if *refusal == Refusal::Internal {
            Outcome::Internal
        } else {
            Outcome::Refused
        };
        self.close(outcome);
    }

    /// Whether the record is written.
    pub(crate) fn is_closed(&self) -> bool {
        self.written
    }

    /// Writes the record to log and metrics. Later calls do nothing.
    pub(crate) fn close(&mut self, outcome: Outcome) {
        if self.written {
            return;
        }
        self.written = true;
        let mut record = std::mem::take(&mut self.record);
        record.outcome = outcome.as_str();
        record.latency_ms = millis_between(self.started, clock::instant());
        failure_log::of_request(&record, outcome, self.cause);
        self.sinks.metrics.record_request(&record);
        self.sinks.access_log.write(record);
    }
}

impl Drop for Entry {
    /// Writes the record if nothing else has: a hook panicked, or the process dropped the request at its end.
    fn drop(&mut self) {
        let outcome = if std::thread::panicking() {
            self.cause = Some(failure_log::PANICKED);
            Outcome::Internal
        } else {
            Outcome::Stopped
        };
        self.close(outcome);
    }
}

/// Whole milliseconds from `start` to `end`; 0 if `end` is earlier.
pub(crate) fn millis_between(start: Instant, end: Instant) -> u64 {
    u64::try_from(end.saturating_duration_since(start).as_millis()).unwrap_or(u64::MAX)
}
