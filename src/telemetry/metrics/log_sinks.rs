//! Metrics of the sinks of the consumption log.

use prometheus::{IntCounter, IntCounterVec, IntGauge, IntGaugeVec};

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

/// What has left the store for the log's home; totals since the start of the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LogTrimFigures {
    /// Rows that have left.
    pub rows: u64,
    /// Days of accounts that stay because the home does not have what their sums say.
    pub differing: u64,
    /// How often store and home could not be compared.
    pub failures: u64,
}

pub(super) struct LogSinkMetrics {
    rows: IntCounterVec,
    failures: IntCounterVec,
    behind: IntGaugeVec,
    behind_seconds: IntGaugeVec,
    dropped: IntCounterVec,
    trimmed: IntCounter,
    differing: IntGauge,
    trim_failures: IntCounter,
    verified: IntGauge,
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
            trimmed: make.counter(
                "weir_log_trimmed_rows_total",
                "Rows of the consumption log that have left the store because its home has them.",
            )?,
            differing: make.gauge(
                "weir_log_differing_days",
                "Days of accounts whose rows stay in the store because the log's home does not have what their sums say.",
            )?,
            trim_failures: make.counter(
                "weir_log_trim_failures_total",
                "How often the store and the log's home could not be compared.",
            )?,
            verified: make.gauge(
                "weir_log_verified_timestamp_seconds",
                "When `weir log verify` last found yesterday's rows of all accounts to be what the daily sums say; 0: not since the start.",
            )?,
        })
    }

    pub(super) fn trimmed(&self, figures: LogTrimFigures) {
        raise(&self.trimmed, figures.rows);
        self.differing.set(i64::try_from(figures.differing).unwrap_or(i64::MAX));
        raise(&self.trim_failures, figures.failures);
    }

    pub(super) fn verified(&self, at: i64) {
        self.verified.set(at);
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
