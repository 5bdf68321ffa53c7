//! How another process comes to take this one's place, as the admin API asks for it.

use std::sync::Arc;

use async_trait::async_trait;

/// What starts the process that takes this one's place.
#[async_trait]
pub(crate) trait Upgrades: Send + Sync {
    /// Returns when the next process serves. It goes on also when nobody waits for it.
    ///
    /// # Errors
    /// Why it does not come up: this process goes on serving.
    async fn upgrade(self: Arc<Self>) -> Result<Upgraded, String>;
}

/// Another process serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Upgraded {
    /// Its process id.
    pub(crate) pid: u32,
    /// How many requests still run in the one before.
    pub(crate) running: usize,
}
