//! Metrics of lines that were lost because nobody took them in time.

use prometheus::IntCounter;

use super::maker::{Maker, raise};

/// Lines that nobody took in time.
pub(crate) struct LostLines {
    access_log: IntCounter,
    diagnostics: IntCounter,
}

impl LostLines {
    pub(super) fn new(make: &Maker<'_>) -> Result<Self, prometheus::Error> {
        Ok(Self {
            access_log: make.counter("weir_access_log_dropped_total", "Access log lines that were lost.")?,
            diagnostics: make.counter(
                "weir_diagnostics_dropped_total",
                "Messages for standard error that were lost.",
            )?,
        })
    }

    /// The access log lines lost since the start; for use in a sampler.
    pub(crate) fn access_log_are(&self, total: u64) {
        raise(&self.access_log, total);
    }

    /// The messages for standard error lost since the start; for use in a sampler.
    pub(crate) fn diagnostics_are(&self, total: u64) {
        raise(&self.diagnostics, total);
    }
}
