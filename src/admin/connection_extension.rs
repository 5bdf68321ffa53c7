//! How long a connection may last.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

/// How long a connection may last, which one of its calls can extend.
#[derive(Clone, Debug, Default)]
pub(crate) struct ConnectionExtension(pub(crate) Arc<AtomicBool>);

impl ConnectionExtension {
    pub(crate) fn extend(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
