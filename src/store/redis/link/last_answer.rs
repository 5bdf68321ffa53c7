//! When a connection or a server last answered.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The moment of the last answer. Clones share it.
#[derive(Clone)]
pub(super) struct LastAnswer {
    born: Instant,
    /// In microseconds since then.
    micros: Arc<AtomicU64>,
}

impl LastAnswer {
    /// What came into being now; that counts as an answer.
    pub(super) fn new(now: Instant) -> Self {
        Self {
            born: now,
            micros: Arc::default(),
        }
    }

    /// Something was answered, be it an error.
    pub(super) fn note(&self, now: Instant) {
        let micros = now.saturating_duration_since(self.born).as_micros();
        self.micros
            .fetch_max(u64::try_from(micros).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// When that was last.
    pub(super) fn at(&self) -> Instant {
        self.born + Duration::from_micros(self.micros.load(Ordering::Relaxed))
    }
}
