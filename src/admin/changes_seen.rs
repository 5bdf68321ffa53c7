//! How many changes have been made through this node, so that nobody who has made one is shown how things stood before it.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

/// A count that all parts of the admin API share.
#[derive(Clone, Debug, Default)]
pub(super) struct ChangesSeen(Arc<AtomicU64>);

/// A change under way. It is counted when it ends, in whichever way.
#[must_use = "the change ends with it"]
pub(super) struct UnderWay<'a>(&'a AtomicU64);

impl ChangesSeen {
    /// How many there have been.
    pub(super) fn count(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }

    /// A change begins.
    pub(super) fn begin(&self) -> UnderWay<'_> {
        UnderWay(&self.0)
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}
