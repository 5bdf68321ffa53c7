//! A reservation: room in the journal promised to a request for its records.

use std::sync::Arc;

use super::Shared;

/// The largest frame of a [`crate::domain::ledger::Record::Admit`] whose texts are at most 128 plain characters each.
pub const ADMIT_BYTES_MAX: u64 = 3 * 1024;
/// The largest frame of a settlement with the same texts; and one with as many parts as a row may have, if no text of it is
/// longer than 40 characters and no count than ten digits.
pub const STEP_BYTES_MAX: u64 = 4 * 1024;
/// What a request needs: its admission and its settlement. A record that is larger all the same takes more room where
/// there is some.
pub const REQUEST_BYTES: u64 = ADMIT_BYTES_MAX + STEP_BYTES_MAX;

/// Room in the journal that nobody else can take. What is not used is given back when it is dropped.
#[derive(Debug)]
pub struct Reservation {
    shared: Arc<Shared>,
    left: u64,
}

impl Reservation {
    pub(super) fn new(shared: Arc<Shared>, left: u64) -> Self {
        Self { shared, left }
    }

    /// The bytes that are still reserved.
    pub fn left(&self) -> u64 {
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
            self.shared.lock().tail.release(self.left);
        }
    }
}
