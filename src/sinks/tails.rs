//! The tails of all lanes that this process feeds to the log's home.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use parking_lot::Mutex;

use crate::{
    domain::ledger::log_filter::LogFilter,
    edges::clock,
    journal::NumberedRow,
    sinks::tail::{LaneRows, Tail, TailBehind},
};

/// How long a reader waits until what is on disk has been read.
const WAIT: Duration = Duration::from_secs(2);
/// How long rows are gathered when nobody is to wait for others of their hour any more.
const HURRIED: Duration = Duration::from_secs(1);

/// The rows on their way to the log's home, of each lane as long as it is fed.
#[derive(Clone)]
pub(crate) struct Tails {
    tails: Arc<Mutex<Vec<Weak<Tail>>>>,
    wait: Duration,
}

impl Default for Tails {
    fn default() -> Self {
        Self {
            tails: Arc::default(),
            wait: WAIT,
        }
    }
}

impl Tails {
    /// None yet, and readers that wait for this long.
    #[cfg(test)]
    pub(super) fn waiting(wait: Duration) -> Self {
        Self {
            wait,
            ..Self::default()
        }
    }

    /// This one too.
    pub(crate) fn add(&self, tail: &Arc<Tail>) {
        let mut tails = self.tails.lock();
        tails.retain(|tail| tail.strong_count() > 0);
        tails.push(Arc::downgrade(tail));
    }

    /// The rows that a filter takes, of all lanes. Whoever reads the home after this finds there what has left meanwhile.
    pub(super) async fn snapshot(&self, filter: &LogFilter) -> Result<Vec<Arc<NumberedRow>>, TailBehind> {
        let until = clock::instant() + self.wait;
        let mut rows = Vec::new();
        for tail in self.all() {
            rows.extend(tail.snapshot(filter, until).await?.rows);
        }
        Ok(rows)
    }

    /// The same of each lane by itself. A lane of which not all can be told is left out.
    pub(super) async fn by_lane(&self, filter: &LogFilter) -> Vec<LaneRows> {
        let until = clock::instant() + self.wait;
        let mut lanes = Vec::new();
        for tail in self.all() {
            lanes.extend(tail.snapshot(filter, until).await.ok());
        }
        lanes
    }

    /// Has rows handed over within a second of their coming from now on: another process is read, and does not see them here.
    pub(crate) fn hurry(&self) {
        for tail in self.all() {
            tail.hurry(HURRIED);
        }
    }

    fn all(&self) -> Vec<Arc<Tail>> {
        self.tails.lock().iter().filter_map(Weak::upgrade).collect()
    }
}
