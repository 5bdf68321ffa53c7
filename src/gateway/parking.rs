//! Where a client's connection waits while the session of its failed request ends.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use pingora::protocols::Stream;

/// Where a connection waits to be continued. Each has its own.
#[derive(Debug, Default)]
pub(crate) struct Parking(Mutex<Option<Stream>>);

impl Parking {
    /// A weak reference for the connection itself, which must not keep itself alive.
    pub(crate) fn sign(self: &Arc<Self>) -> Weak<Self> {
        Arc::downgrade(self)
    }

    /// Leaves a connection here.
    pub(crate) fn put(&self, stream: Stream) {
        *self.0.lock() = Some(stream);
    }

    /// Takes the parked connection out, if there is one.
    pub(crate) fn take(&self) -> Option<Stream> {
        self.0.lock().take()
    }
}
