//! How long a connection may last.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

/// How long a connection may last, which one of its calls can extend.
#[derive(Clone, Debug, Default)]
pub(super) struct ConnectionExtension(pub(super) Arc<AtomicBool>);

impl ConnectionExtension {
    pub(super) fn extend(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
