//! Metrics of the store.

use std::time::Duration;

use prometheus::{Gauge, Histogram, IntGauge, IntGaugeVec};

use super::health::Health;
use super::maker::Maker;

/// Upper bounds of the admission histogram, in seconds: a quarter of a millisecond to beyond the longest budget of a call.
const ADMISSION_BUCKETS: [f64; 12] = [
    0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0,
];

/// The store's metrics.
pub(super) struct StoreMetrics {
    up: IntGauge,
    warning: IntGaugeVec,
    memory_used: IntGauge,
    memory_max: IntGauge,
    untold_hours: IntGauge,
    stability_read_at: IntGauge,
    admission: Histogram,
    clock_offset: Gauge,
}

impl StoreMetrics {
    pub(super) fn new(make: &Maker<'_>) -> Result<Self, prometheus::Error> {
        Ok(Self {
            up: make.gauge("weir_store_up", "1 while the store is reachable.")?,
            warning: make.gauges(
                "weir_store_warning",
                "1 while a setting of the store may lose what it acknowledged, or its user lacks rights.",
                &["kind"],
            )?,
            memory_used: make.gauge(
                "weir_store_memory_used_bytes",
                "Memory that the fullest master of the store's Redis uses; 0 where that is not seen.",
            )?,
            memory_max: make.gauge(
                "weir_store_memory_max_bytes",
                "Memory that it may use (maxmemory, or what its machine has); 0 where that is not seen.",
            )?,
            untold_hours: make.gauge(
                "weir_stability_untold_hours",
                "Hours with counters of this node that the store has not taken when it was last told.",
            )?,
            stability_read_at: make.gauge(
                "weir_stability_read_timestamp_seconds",
                "When the published stability record was last read from the store; 0 if never.",
            )?,
            admission: make.histogram(
                "weir_admission_duration_seconds",
                "From asking the store for a request's money to its answer, the record in the journal included.",
                &ADMISSION_BUCKETS,
            )?,
            clock_offset: make.float_gauge(
                "weir_clock_offset_seconds",
                "By how much this node's clock is ahead of the store's; 0 until the store has told the time.",
            )?,
        })
    }
}

impl StoreMetrics {
    pub(super) fn is(&self, state: Health) {
        self.up.set(state.as_gauge());
    }

    pub(super) fn warning_is(&self, kind: &'static str, is_so: bool) {
        self.warning.with_label_values(&[kind]).set(i64::from(is_so));
    }

    pub(super) fn memory_is(&self, used: u64, most: u64) {
        self.memory_used.set(i64::try_from(used).unwrap_or(i64::MAX));
        self.memory_max.set(i64::try_from(most).unwrap_or(i64::MAX));
    }

    pub(super) fn stability_is(&self, untold_hours: usize, read_at: i64) {
        self.untold_hours.set(i64::try_from(untold_hours).unwrap_or(i64::MAX));
        self.stability_read_at.set(read_at);
    }

    pub(super) fn clock_offset_is(&self, offset_ms: i64) {
        // Beyond what a double counts exactly a clock is off by millennia.
        #[expect(clippy::cast_precision_loss, reason = "see above")]
        let millis = offset_ms as f64;
        self.clock_offset.set(millis / 1000.0);
    }

    pub(super) fn admission_took(&self, time: Duration) {
        self.admission.observe(time.as_secs_f64());
    }
}
