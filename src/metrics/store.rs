//! What is known of the store, as figures.

use prometheus::{IntGauge, IntGaugeVec};

use super::{Health, Maker, Metrics};

/// The store's metrics.
pub(super) struct Store {
    up: IntGauge,
    warning: IntGaugeVec,
    untold_hours: IntGauge,
    stability_read_at: IntGauge,
}

impl Store {
    pub(super) fn new(make: &Maker<'_>) -> Result<Self, prometheus::Error> {
        Ok(Self {
            up: make.gauge("weir_store_up", "1 while the store is reachable.")?,
            warning: make.gauges(
                "weir_store_warning",
                "1 while a setting of the store may lose what it acknowledged.",
                &["kind"],
            )?,
            untold_hours: make.gauge(
                "weir_stability_untold_hours",
                "Hours with counters of this node that the store has not taken when it was last told.",
            )?,
            stability_read_at: make.gauge(
                "weir_stability_read_timestamp_seconds",
                "When the published stability record was last read from the store; 0 if never.",
            )?,
        })
    }
}

impl Metrics {
    /// Whether the store is reachable.
    pub fn store_is(&self, state: Health) {
        self.store.up.set(state.as_gauge());
    }

    /// Whether the store is set up in a way that may lose data; `kind` from a closed set.
    pub fn store_warning_is(&self, kind: &'static str, is_so: bool) {
        self.store.warning.with_label_values(&[kind]).set(i64::from(is_so));
    }

    /// How many hours of this node's counters the store lacks, and when the published record was last read, in seconds since
    /// the Unix epoch.
    pub fn stability_is(&self, untold_hours: usize, read_at: i64) {
        self.store
            .untold_hours
            .set(i64::try_from(untold_hours).unwrap_or(i64::MAX));
        self.store.stability_read_at.set(read_at);
    }
}
