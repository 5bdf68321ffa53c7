//! The log's home beside the store, as the admin API works on it.

use std::sync::Arc;

use tokio::sync::Mutex;

use crate::sinks::{Home, SinkFigures};

/// The log's home, and what is known of how complete it is.
#[derive(Clone)]
pub(crate) struct LogHome {
    pub(super) home: Arc<dyn Home>,
    pub(super) figures: Arc<SinkFigures>,
    /// Filled by one request at a time: two would bring the same rows.
    pub(super) filling: Arc<Mutex<()>>,
}

impl LogHome {
    /// This home, fed as its figures say.
    pub(crate) fn new(home: Arc<dyn Home>, figures: Arc<SinkFigures>) -> Self {
        Self {
            home,
            figures,
            filling: Arc::default(),
        }
    }
}
