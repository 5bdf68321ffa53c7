//! When the ledger's file is written, and what is done by the clock: old rows are removed each hour.

use std::time::Duration;

use tokio::{sync::Notify, time::timeout};

use super::{EmbeddedLedger, HOUR_MS};

/// How long a change may wait for others to be written with it.
pub(in crate::store::embedded) const COMMIT_AFTER: Duration = Duration::from_secs(1);
/// So many rows are written at once.
pub(super) const COMMIT_ROWS: usize = 2048;

/// Tells who writes the file that there is something to write. It outlives the file, which may be opened again.
#[derive(Debug, Default)]
pub(in crate::store::embedded) struct CommitSignals {
    /// Something has changed, after everything was written.
    pub(super) changed: Notify,
    /// [`COMMIT_ROWS`] wait.
    pub(super) full: Notify,
}

impl CommitSignals {
    /// Waits until a turn of the upkeep is due: changes have waited for `most`, there are many rows, or an hour has begun.
    pub(in crate::store::embedded) async fn due(&self, most: Duration, now_ms: i64) {
        let changes = async {
            self.changed.notified().await;
            let _ = timeout(most, self.full.notified()).await;
        };
        let hour = HOUR_MS.saturating_sub(now_ms.rem_euclid(HOUR_MS));
        let _ = timeout(Duration::from_millis(hour.unsigned_abs()), changes).await;
    }
}

/// What is done all the time: changes are written, and now and then old rows are removed.
#[derive(Default)]
pub(in crate::store::embedded) struct Upkeep {
    failing: bool,
    /// The hour of the last removal.
    cleaned: Option<i64>,
}

impl Upkeep {
    /// Whether what is done each hour is due.
    pub(in crate::store::embedded) fn is_hourly(&self, now_ms: i64) -> bool {
        self.cleaned != Some(now_ms.div_euclid(HOUR_MS))
    }

    /// One turn, the last one when it has `ended`. Says whether everything that was applied before it is on the disk.
    pub(in crate::store::embedded) async fn turn(&mut self, ledger: &EmbeddedLedger, ended: bool) -> bool {
        let outcome = ledger.flush().await;
        match &outcome {
            Ok(()) if self.failing => tracing::info!("the ledger is written again"),
            Err(error) if !self.failing || ended => {
                tracing::error!(%error, "the ledger cannot be written, the journal keeps what is missing; see to the disk");
            }
            Ok(()) | Err(_) => {}
        }
        self.failing = outcome.is_err();
        let now_ms = (ledger.now_ms)();
        if !ended && self.is_hourly(now_ms) {
            self.cleaned = Some(now_ms.div_euclid(HOUR_MS));
            if let Err(error) = ledger.remove_old_rows().await {
                tracing::warn!(%error, "old rows of the consumption log and old hours stay for another day");
            }
        }
        outcome.is_ok()
    }
}
