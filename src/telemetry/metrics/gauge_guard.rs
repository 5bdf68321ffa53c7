//! A gauge of what is under way.

use prometheus::IntGauge;

/// One of something while it lives.
#[derive(Debug)]
#[must_use = "dropping the guard ends what it counts"]
pub(crate) struct GaugeGuard(IntGauge);

impl GaugeGuard {
    pub(super) fn new(gauge: &IntGauge) -> Self {
        gauge.inc();
        Self(gauge.clone())
    }
}

impl Drop for GaugeGuard {
    fn drop(&mut self) {
        self.0.dec();
    }
}
