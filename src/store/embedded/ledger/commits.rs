//! When the ledger's file is written.

use std::time::Duration;

use tokio::{sync::Notify, time::timeout};

pub(super) const HOUR_MS: i64 = 3600 * 1000;
/// How long a change may wait for others to be written with it.
pub(super) const COMMIT_AFTER: Duration = Duration::from_secs(1);
/// So many rows are written at once.
pub(super) const COMMIT_ROWS: usize = 2048;

/// Tells who writes the file that there is something to write. It outlives the file, which may be opened again.
#[derive(Debug, Default)]
pub(super) struct CommitSignals {
    /// Something has changed, after everything was written.
    pub(super) changed: Notify,
    /// [`COMMIT_ROWS`] wait.
    pub(super) full: Notify,
}

impl CommitSignals {
    /// Waits until a turn of the upkeep is due: changes have waited for `most`, there are many rows, or an hour has begun.
    pub(super) async fn due(&self, most: Duration, now_ms: i64) {
        let changes = async {
            self.changed.notified().await;
            let _ = timeout(most, self.full.notified()).await;
        };
        let hour = HOUR_MS.saturating_sub(now_ms.rem_euclid(HOUR_MS));
        let _ = timeout(Duration::from_millis(hour.unsigned_abs()), changes).await;
    }
}
