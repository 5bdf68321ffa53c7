//! When the ledger's file is written.

use std::time::Duration;

use tokio::{
    sync::Notify,
    time::{sleep, timeout},
};

pub(super) const HOUR_MS: i64 = 3600 * 1000;
/// How long a change may wait to be written together with others.
pub(super) const COMMIT_AFTER: Duration = Duration::from_secs(1);
/// How long writing may fail before no further steps are applied, in milliseconds. The journal keeps them.
pub(super) const FAILING_MAX_MS: i64 = 60 * 1000;

/// Wakes the task that writes the file. Outlives the file, which may be opened again.
#[derive(Debug, Default)]
pub(super) struct CommitSignals {
    /// Something has changed, after everything was written.
    pub(super) changed: Notify,
}

impl CommitSignals {
    /// Waits until a turn of the upkeep is due: changes have waited for `most`, or a new hour has begun.
    pub(super) async fn wait_until_due(&self, most: Duration, now_ms: i64) {
        let changes = async {
            self.changed.notified().await;
            sleep(most).await;
        };
        let hour = HOUR_MS.saturating_sub(now_ms.rem_euclid(HOUR_MS));
        let _ = timeout(Duration::from_millis(hour.unsigned_abs()), changes).await;
    }
}
