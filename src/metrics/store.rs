//! What is known of the store, as figures.

use prometheus::{IntGauge, IntGaugeVec};

use super::{Health, Maker, Metrics};

/// The store's metrics.
pub(super) struct Store {
    up: IntGauge,
    warning: IntGaugeVec,
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
}
