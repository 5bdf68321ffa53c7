//! The connections that the table is read over.

use parking_lot::Mutex;
use tokio::sync::Semaphore;

use crate::sinks::postgres::{
    connection::{Connection, Dialer},
    error::PostgresError,
    settings::PostgresSettings,
};

/// The most questions that are asked at the same time. Others wait for their turn, no longer than for an answer.
const READERS_MAX: usize = 2;

/// Reads the log of a database.
pub(super) struct Reading {
    pub(super) turns: Semaphore,
    /// Connections that nothing is under way on; at most [`READERS_MAX`].
    pub(super) idle: Mutex<Vec<Connection>>,
}

impl Default for Reading {
    fn default() -> Self {
        Self {
            turns: Semaphore::new(READERS_MAX),
            idle: Mutex::default(),
        }
    }
}

impl Reading {
    /// One that nothing is under way on.
    pub(super) async fn connection(
        &self,
        dialer: &Dialer,
        settings: &PostgresSettings,
    ) -> Result<Connection, PostgresError> {
        let kept = self.idle.lock().pop().filter(|kept| !kept.client.is_closed());
        match kept {
            Some(kept) => Ok(kept),
            None => dialer.connect(settings.read).await,
        }
    }
}
