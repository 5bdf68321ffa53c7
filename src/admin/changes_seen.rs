//! Counts the changes made through this node, so that nobody who has made one is shown an older answer.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

/// The number of changes, shared by all parts of the admin API.
#[derive(Clone, Debug, Default)]
pub(super) struct ChangeCounter(Arc<AtomicU64>);

/// A change in progress. It is counted when it ends, whether it succeeded or not.
#[must_use = "the change ends with it"]
pub(super) struct PendingChange<'a>(&'a AtomicU64);

impl ChangeCounter {
    /// The number of changes so far.
    pub(super) fn count(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }

    /// Begins a change.
    pub(super) fn begin(&self) -> PendingChange<'_> {
        PendingChange(&self.0)
    }
}

impl Drop for PendingChange<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}
