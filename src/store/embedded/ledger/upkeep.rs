//! What is done with the ledger's file all the time: changes are written, and each hour days are closed and old sums removed.

use std::sync::Arc;

use tokio::sync::watch;

use super::{
    Books, EmbeddedLedger,
    commits::{COMMIT_AFTER, HOUR_MS},
    flush,
};
use crate::store::embedded::{blocking, ownership::Owner};

impl EmbeddedLedger {
    /// Writes changes all the time, until `shutdown` turns true or its sender is gone; then once more. Each hour `applied` notes
    /// how far journals know their steps as applied, and what it returns is called when all of these are in the file.
    pub(crate) async fn run<W: FnOnce()>(&self, mut shutdown: watch::Receiver<bool>, applied: impl Fn(&Books) -> W) {
        let (mut upkeep, mut ended) = (Upkeep::default(), false);
        loop {
            if let Owner::Here(books) = &*self.ownership.owner().await {
                let now_ms = (self.now_ms)();
                let written = upkeep.is_hourly(now_ms).then(|| applied(books));
                if upkeep.turn(books, now_ms, ended).await
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
                () = self.signals.due(COMMIT_AFTER, (self.now_ms)()) => false,
            };
        }
    }
}

/// How the last turns went.
#[derive(Default)]
pub(super) struct Upkeep {
    failing: bool,
    /// The hour of the last removal.
    cleaned: Option<i64>,
}

impl Upkeep {
    /// Whether what is done each hour is due.
    pub(super) fn is_hourly(&self, now_ms: i64) -> bool {
        self.cleaned != Some(now_ms.div_euclid(HOUR_MS))
    }

    /// One turn, the last one when it has `ended`. Says whether everything that was applied before it is on the disk.
    pub(super) async fn turn(&mut self, books: &Arc<Books>, now_ms: i64, ended: bool) -> bool {
        let outcome = flush(books, now_ms).await;
        match &outcome {
            Ok(()) if self.failing => tracing::info!("the ledger is written again"),
            Err(error) if !self.failing || ended => {
                tracing::error!(%error, "the ledger cannot be written, the journal keeps what is missing; see to the disk");
            }
            Ok(()) | Err(_) => {}
        }
        self.failing = outcome.is_err();
        if !ended && self.is_hourly(now_ms) {
            self.cleaned = Some(now_ms.div_euclid(HOUR_MS));
            let books = Arc::clone(books);
            let keep_house = move || {
                books.close_days(now_ms);
                books.remove_old(now_ms)
            };
            if let Err(error) = blocking(keep_house).await {
                tracing::warn!(%error, "old daily sums and old hours stay for another day");
            }
        }
        outcome.is_ok()
    }
}
