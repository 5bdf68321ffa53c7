//! Metrics of the reloads of the configuration.

use prometheus::{IntCounterVec, IntGauge};

use super::maker::Maker;

pub(super) struct Reloads {
    ended: IntCounterVec,
    failed: IntGauge,
    in_force_since: IntGauge,
}

impl Reloads {
    pub(super) fn new(make: &Maker<'_>) -> Result<Self, prometheus::Error> {
        Ok(Self {
            ended: make.counters(
                "weir_config_reloads_total",
                "Reloads of the configuration.",
                &["result"],
            )?,
            failed: make.gauge(
                "weir_config_reload_failed",
                "1 while the last reload failed and an older configuration is in force.",
            )?,
            in_force_since: make.gauge(
                "weir_config_reloaded_timestamp_seconds",
                "When the configuration in force was loaded anew; 0 since the start.",
            )?,
        })
    }
}

impl Reloads {
    pub(super) fn ended(&self, good: bool, now: i64) {
        let result = if good { "ok" } else { "failed" };
        self.ended.with_label_values(&[result]).inc();
        self.failed.set(i64::from(!good));
        if good {
            self.in_force_since.set(now);
        }
    }
}
