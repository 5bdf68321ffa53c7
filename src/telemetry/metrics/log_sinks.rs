//! Metrics of the sinks of the consumption log.

use prometheus::{IntCounterVec, IntGaugeVec};

use super::maker::{Maker, raise};

/// How a sink stands; totals since the start of the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LogSinkFigures {
    /// Rows that it has taken.
    pub rows: u64,
    /// How often it has refused rows or could not be reached.
    pub failures: u64,
    /// For how long it has lacked a row, in milliseconds; 0 if it lacks none.
    pub behind_ms: u64,
    /// What the journal has behind the rows that it has, in bytes.
    pub behind_bytes: u64,
    /// Rows that it will not get any more.
    pub dropped: u64,
}

pub(super) struct LogSinkMetrics {
    rows: IntCounterVec,
    failures: IntCounterVec,
    behind: IntGaugeVec,
    behind_seconds: IntGaugeVec,
    dropped: IntCounterVec,
}

impl LogSinkMetrics {
    pub(super) fn new(make: &Maker<'_>) -> Result<Self, prometheus::Error> {
        let counters = |name, help| make.counters(name, help, &["sink"]);
        Ok(Self {
            rows: counters(
                "weir_log_sink_rows_total",
                "Rows of the consumption log that a sink has taken.",
            )?,
            failures: counters(
                "weir_log_sink_failures_total",
                "How often a sink of the consumption log has refused rows or could not be reached.",
            )?,
            behind: make.gauges(
                "weir_log_sink_behind_bytes",
                "What the journal has behind the rows that a sink of the consumption log has, and keeps for it.",
                &["sink"],
            )?,
            behind_seconds: make.gauges(
                "weir_log_sink_behind_seconds",
                "For how long a sink of the consumption log has lacked a row that the journal has.",
                &["sink"],
            )?,
            dropped: counters(
                "weir_log_sink_dropped_rows_total",
                "Rows that an optional sink of the consumption log lacked when the disk was nearly full; it does not get them.",
            )?,
        })
    }

    pub(super) fn is(&self, sink: &str, figures: LogSinkFigures) {
        raise(&self.rows.with_label_values(&[sink]), figures.rows);
        raise(&self.failures.with_label_values(&[sink]), figures.failures);
        let behind = i64::try_from(figures.behind_bytes).unwrap_or(i64::MAX);
        self.behind.with_label_values(&[sink]).set(behind);
        let seconds = i64::try_from(figures.behind_ms / 1000).unwrap_or(i64::MAX);
        self.behind_seconds.with_label_values(&[sink]).set(seconds);
        raise(&self.dropped.with_label_values(&[sink]), figures.dropped);
    }
}
