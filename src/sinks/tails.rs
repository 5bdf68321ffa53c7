//! The tails of all lanes that this process feeds to the log backend.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use parking_lot::Mutex;

use crate::{
    domain::ledger::log_filter::LogFilter,
    edges::clock,
    journal::NumberedRow,
    sinks::tail::{LaneRows, LogTail, TailBehind},
};

/// The timeout of a reader that waits until the rows on disk have been read.
const WAIT: Duration = Duration::from_secs(2);
/// How long a batch waits for rows after [`Tails::hurry`].
const HURRIED: Duration = Duration::from_secs(1);

/// The rows on their way to the log backend, of each lane as long as it is fed.
#[derive(Clone)]
pub(crate) struct LogTails {
    tails: Arc<Mutex<Vec<Weak<LogTail>>>>,
    wait: Duration,
}

impl Default for LogTails {
    fn default() -> Self {
        Self {
            tails: Arc::default(),
            wait: WAIT,
        }
    }
}

impl LogTails {
    /// No tails, with another timeout of readers.
    #[cfg(test)]
    pub(super) fn waiting(wait: Duration) -> Self {
        Self {
            wait,
            ..Self::default()
        }
    }

    /// Adds a tail.
    pub(crate) fn add(&self, tail: &Arc<LogTail>) {
        let mut tails = self.tails.lock();
        tails.retain(|tail| tail.strong_count() > 0);
        tails.push(Arc::downgrade(tail));
    }

    /// The rows of all lanes that match a filter. Rows that leave the tails meanwhile are in the log backend, if it is read after
    /// this.
    pub(super) async fn snapshot(&self, filter: &LogFilter) -> Result<Vec<Arc<NumberedRow>>, TailBehind> {
        let until = clock::instant() + self.wait;
        let mut rows = Vec::new();
        for tail in self.all() {
            rows.extend(tail.snapshot(filter, until).await?.rows);
        }
        Ok(rows)
    }

    /// The same by lane. Lanes whose rows are not all known are left out.
    pub(super) async fn by_lane(&self, filter: &LogFilter) -> Vec<LaneRows> {
        let until = clock::instant() + self.wait;
        let mut lanes = Vec::new();
        for tail in self.all() {
            lanes.extend(tail.snapshot(filter, until).await.ok());
        }
        lanes
    }

    /// From now on hands rows over within a second: the log is read through another process, which does not see these tails.
    pub(crate) fn hurry(&self) {
        for tail in self.all() {
            tail.hurry(HURRIED);
        }
    }

    fn all(&self) -> Vec<Arc<LogTail>> {
        self.tails.lock().iter().filter_map(Weak::upgrade).collect()
    }
}
