//! The connections for reading.

use parking_lot::Mutex;
use tokio::sync::Semaphore;

use crate::sinks::postgres::{
    connection::{PostgresConnection, PostgresDialer},
    error::PostgresError,
    settings::PostgresSettings,
};

/// The maximum number of concurrent queries. Further ones wait; their timeout includes the wait.
const READERS_MAX: usize = 2;

/// Reads the log of a database.
pub(super) struct PostgresReader {
    pub(super) permits: Semaphore,
    /// Idle connections; at most [`READERS_MAX`].
    pub(super) idle: Mutex<Vec<PostgresConnection>>,
}

impl Default for PostgresReader {
    fn default() -> Self {
        Self {
            permits: Semaphore::new(READERS_MAX),
            idle: Mutex::default(),
        }
    }
}

impl PostgresReader {
    /// An idle connection, or a new one.
    pub(super) async fn connection(
        &self,
        dialer: &PostgresDialer,
        settings: &PostgresSettings,
    ) -> Result<PostgresConnection, PostgresError> {
        let kept = self.idle.lock().pop().filter(|kept| !kept.client.is_closed());
        match kept {
            Some(kept) => Ok(kept),
            None => dialer.connect(settings.read).await,
        }
    }
}
