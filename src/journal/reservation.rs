//! A reservation: room in the journal promised to a request for its records.

use std::sync::Arc;

use crate::journal::engine::JournalEngine;

/// Room in the journal that nobody else can take. What is not used is given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Reservation {
    engine: Arc<JournalEngine>,
    left: u64,
}

impl Reservation {
    pub(super) fn new(engine: Arc<JournalEngine>, left: u64) -> Self {
        Self { engine, left }
    }

    /// The bytes that are still reserved.
    pub(crate) fn left(&self) -> u64 {
        self.left
    }

    pub(super) fn grow(&mut self, bytes: u64) {
        self.left = self.left.saturating_add(bytes);
    }

    pub(super) fn spend(&mut self, bytes: u64) {
        self.left = self.left.saturating_sub(bytes);
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if self.left > 0 {
            self.engine.lock().tail.release(self.left);
        }
    }
}
