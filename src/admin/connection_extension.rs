//! How long a connection may last.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

/// Extends the lifetime of a connection, on request of one of its calls.
#[derive(Clone, Debug, Default)]
pub(crate) struct ConnectionExtension(pub(crate) Arc<AtomicBool>);

impl ConnectionExtension {
    pub(crate) fn extend(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
