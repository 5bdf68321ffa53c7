//! Words that are set when a test ends, however it ends: a thread that goes on until then would never end after a failure.

use std::sync::atomic::{AtomicBool, Ordering};

/// Sets all of them when it is dropped.
pub(crate) struct SetAtEnd<'a, const COUNT: usize>(pub(crate) [&'a AtomicBool; COUNT]);

impl<const COUNT: usize> Drop for SetAtEnd<'_, COUNT> {
    fn drop(&mut self) {
        self.0.iter().for_each(|word| word.store(true, Ordering::SeqCst));
    }
}
