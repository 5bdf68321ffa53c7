//! What can be asked of a sink's feeders, of all lanes together.

use std::sync::atomic::{AtomicU64, Ordering};

/// Totals since the start of the process.
#[derive(Debug, Default)]
pub(crate) struct SinkFigures {
    rows: AtomicU64,
    failures: AtomicU64,
}

impl SinkFigures {
    pub(super) fn took(&self, rows: usize) {
        self.rows.fetch_add(rows as u64, Ordering::Relaxed);
    }

    pub(super) fn failed(&self) {
        self.failures.fetch_add(1, Ordering::Relaxed);
    }

    /// Rows that the sink has acknowledged.
    pub(crate) fn rows(&self) -> u64 {
        self.rows.load(Ordering::Relaxed)
    }

    /// How often it has refused, or could not be reached.
    pub(crate) fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }
}
