//! Holds a client's connection while the session of its failed request ends.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use pingora::protocols::Stream;

/// Holds a client's connection while the session of its failed request ends. Each connection has its own.
#[derive(Debug, Default)]
pub(crate) struct ConnectionParking(Mutex<Option<Stream>>);

impl ConnectionParking {
    /// A weak reference for the connection itself, so that a parked one does not keep itself alive.
    pub(crate) fn weak(self: &Arc<Self>) -> Weak<Self> {
        Arc::downgrade(self)
    }

    /// Parks the connection.
    pub(crate) fn put(&self, stream: Stream) {
        *self.0.lock() = Some(stream);
    }

    /// Takes the parked connection out; `None` if there is none.
    pub(crate) fn take(&self) -> Option<Stream> {
        self.0.lock().take()
    }
}
