//! The periodic work on the ledger's file: writing changes, and each hour closing days and removing old sums.

use std::sync::Arc;

use tokio::sync::watch;

use super::{AccountTable, EmbeddedLedger, flush};
use crate::store::embedded::ledger::{COMMIT_AFTER, HOUR_MS};
use crate::store::embedded::{blocking, ownership::FilesOwner};

impl EmbeddedLedger {
    /// Writes changes until `shutdown` becomes true or its sender is dropped, then once more. Each hour, `applied` reads up to
    /// which step the journals have recorded their steps as applied. The function that it returns is called when all of these are
    /// in the file.
    pub(crate) async fn run<W: FnOnce()>(
        &self,
        mut shutdown: watch::Receiver<bool>,
        applied: impl Fn(&AccountTable) -> W,
    ) {
        let (mut upkeep, mut ended) = (Upkeep::default(), false);
        loop {
            if let FilesOwner::Here(books) = &*self.ownership.owner().await {
                let now_ms = (self.now_ms)();
                let written = upkeep.is_hour_due(now_ms).then(|| applied(books));
                if upkeep.run_turn(books, now_ms, ended).await
                    && let Some(written) = written
                {
                    written();
                }
            }
            if ended {
                return;
            }
            ended = tokio::select! {
                _ = shutdown.wait_for(|ended| *ended) => true,
                () = self.signals.wait_until_due(COMMIT_AFTER, (self.now_ms)()) => false,
            };
        }
    }
}

/// The outcomes of the last turns of the upkeep.
#[derive(Default)]
pub(super) struct Upkeep {
    failing: bool,
    /// The hour of the last removal, as the number of hours since the Unix epoch; `None` before the first.
    cleaned_hour: Option<i64>,
}

impl Upkeep {
    /// Whether the hourly work is due.
    pub(super) fn is_hour_due(&self, now_ms: i64) -> bool {
        self.cleaned_hour != Some(now_ms.div_euclid(HOUR_MS))
    }

    /// Runs one turn, which is the last one if `ended`. Returns whether everything that was applied before it is on disk.
    pub(super) async fn run_turn(&mut self, books: &Arc<AccountTable>, now_ms: i64, ended: bool) -> bool {
        let outcome = flush(books, now_ms).await;
        if outcome.is_err() {
            // If the runtime is ending, as after a failed start, this task ends here: the file was not at fault.
            tokio::task::yield_now().await;
        }
        match &outcome {
            Ok(()) if self.failing => tracing::info!("the ledger's file is written again"),
            Err(error) if !self.failing || ended => {
                tracing::error!(%error, "cannot write the ledger's file: check the disk; the journal keeps the changes that the file lacks");
            }
            Ok(()) | Err(_) => {}
        }
        self.failing = outcome.is_err();
        if !ended && self.is_hour_due(now_ms) {
            self.cleaned_hour = Some(now_ms.div_euclid(HOUR_MS));
            let books = Arc::clone(books);
            let keep_house = move || {
                books.close_days(now_ms);
                books.remove_old(now_ms)
            };
            if let Err(error) = blocking(keep_house).await {
                tracing::warn!(%error, "cannot remove old daily sums and stability hours; trying again in an hour");
            }
        }
        outcome.is_ok()
    }
}
