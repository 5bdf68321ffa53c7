//! The rows of a lane that have been read from the journal and that a sink has not acknowledged.
//!
//! One task reads what is on disk, up to a bound; another one cuts batches from the front and hands them to the sink. Rows leave
//! only behind the sink's word, so whoever looks here first and at the sink then finds each row in one of the two.

use std::{
    collections::VecDeque,
    sync::{Arc, Weak},
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use thiserror::Error;
use tokio::{
    sync::{Notify, watch},
    time::timeout,
};

use crate::{
    domain::ledger::{NodeId, log_filter::LogFilter},
    edges::clock,
    journal::{Journal, NumberedRow},
    sinks::{batching::Batching, figures::DISORDER_MS, sink::Batch},
};

/// A reader cannot be told all rows: of some it is not known yet what they are.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(crate) enum TailBehind {
    /// The home has not answered yet, so nobody knows where to begin reading.
    #[error("the log's home cannot be read: since this process began it has not said which rows of {0} it has")]
    HomeSilent(NodeId),
    /// Some are still on the disk.
    #[error(
        "rows of {0} that the log's home lacks have not all been read from the journal, for they are many or the disk is slow"
    )]
    Unread(NodeId),
}

/// The rows of a lane that a filter takes, of those that a sink has not acknowledged.
#[derive(Clone, Debug)]
pub(super) struct LaneRows {
    /// The lane.
    pub(super) node: NodeId,
    /// All rows before this number that the filter takes are among these, or the sink has acknowledged them.
    pub(super) reached: u64,
    /// In the order of their numbers.
    pub(super) rows: Vec<Arc<NumberedRow>>,
}

/// What is read of a lane, and how far.
pub(crate) struct Tail {
    node: NodeId,
    batching: Batching,
    /// Up to which number rows are on disk; `None`: the lane is closed.
    on_disk: Box<dyn Fn() -> Option<u64> + Send + Sync>,
    held: Mutex<Held>,
    /// Marked as changed with each change of `held`.
    moved: watch::Sender<()>,
    /// Notified when there may be room for further rows.
    room: Notify,
    /// Notified when somebody waits for what is on disk.
    asked: Notify,
    /// How long a batch waits for further rows at most; `None`: as its sink wants it.
    hurry: watch::Sender<Option<Duration>>,
}

/// The rows, and where they begin and end.
#[derive(Default)]
struct Held {
    /// In the order of their numbers.
    rows: VecDeque<Arc<NumberedRow>>,
    /// The sink has all rows with lower numbers; `None`: it has not said what it has.
    after: Option<u64>,
    /// All rows from `after` to below this number are in `rows`.
    read_to: u64,
    /// There were no further rows on disk when it was looked last.
    is_at_end: bool,
    /// A row that has not been read did not end earlier than [`DISORDER_MS`] before this time; `None`: that is not known.
    unread_ms: Option<i64>,
    /// The first and the last moment that one of the rows ended, or more.
    times: Option<(i64, i64)>,
}

impl Tail {
    /// Of a lane, for a sink with such batches.
    pub(super) fn of_journal(journal: &Arc<Journal>, batching: Batching) -> Self {
        let lane: Weak<Journal> = Arc::downgrade(journal);
        let on_disk = move || lane.upgrade().map(|journal| journal.on_disk());
        Self::new(journal.node().clone(), batching, Box::new(on_disk))
    }

    /// Of a lane that has this on disk.
    pub(super) fn new(node: NodeId, batching: Batching, on_disk: Box<dyn Fn() -> Option<u64> + Send + Sync>) -> Self {
        Self {
            node,
            batching,
            on_disk,
            held: Mutex::default(),
            moved: watch::Sender::new(()),
            room: Notify::new(),
            asked: Notify::new(),
            hurry: watch::Sender::new(None),
        }
    }

    /// The sink has all rows before a number, and these are to be read from there on. No row of the journal has ended before the oldest,
    /// give or take [`DISORDER_MS`].
    pub(super) fn begin(&self, after: u64, oldest_ms: Option<i64>) {
        *self.held.lock() = Held {
            after: Some(after),
            read_to: after,
            unread_ms: oldest_ms,
            ..Held::default()
        };
        self.moved.send_replace(());
    }

    /// How many further rows may be read now: twice as many as a batch has are in memory at most.
    pub(super) fn room(&self) -> usize {
        let most = self.batching.rows_max.saturating_mul(2);
        most.saturating_sub(self.held.lock().rows.len())
    }

    /// Waits until there may be room again.
    pub(super) async fn has_room(&self) {
        self.room.notified().await;
    }

    /// Waits until somebody wants to know what is on disk.
    pub(super) async fn is_asked(&self) {
        self.asked.notified().await;
    }

    /// Rows have been read that follow those that are there, up to a number. `is_at_end`: there were no others on disk.
    pub(super) fn push(&self, rows: Vec<NumberedRow>, read_to: u64, is_at_end: bool) {
        let mut held = self.held.lock();
        for row in rows {
            let time_ms = row.row.time_ms;
            let (first, last) = held.times.unwrap_or((time_ms, time_ms));
            held.times = Some((first.min(time_ms), last.max(time_ms)));
            held.unread_ms = Some(held.unread_ms.map_or(time_ms, |known| known.max(time_ms)));
            held.rows.push_back(Arc::new(row));
        }
        (held.read_to, held.is_at_end) = (read_to, is_at_end);
        drop(held);
        self.moved.send_replace(());
    }

    /// The sink has all rows before a number, which a batch ends with.
    pub(super) fn acknowledged(&self, upto: u64) {
        let mut held = self.held.lock();
        while held.rows.front().is_some_and(|first| first.number < upto) {
            held.rows.pop_front();
        }
        if held.rows.is_empty() {
            held.times = None;
        }
        held.after = Some(upto);
        drop(held);
        self.room.notify_one();
        self.moved.send_replace(());
    }

    /// Up to which number the sink has all rows, as far as is known here.
    pub(super) fn passed(&self) -> u64 {
        let held = self.held.lock();
        let after = held.after.unwrap_or(0);
        if held.rows.is_empty() {
            held.read_to.max(after)
        } else {
            after
        }
    }

    /// When the oldest row ended that the sink lacks; `None` within: it lacks none. `None`: that is not known.
    pub(super) fn lacks(&self) -> Option<Option<i64>> {
        let held = self.held.lock();
        match held.rows.front() {
            Some(first) => Some(Some(first.row.time_ms)),
            None => held.is_at_end.then_some(None),
        }
    }

    /// The next batch, as soon as it is complete. Of several calls each begins where the last batch that was acknowledged ends.
    pub(super) async fn batch(&self) -> Batch {
        let (mut moved, mut hurry) = (self.moved.subscribe(), self.hurry.subscribe());
        let (mut begun, mut count) = (None, 0);
        loop {
            moved.borrow_and_update();
            let hurried = *hurry.borrow_and_update();
            let left = {
                let held = self.held.lock();
                match held.rows.front().map(|first| first.row.time_ms) {
                    None => None,
                    Some(first_ms) => {
                        let begun = *begun.get_or_insert_with(clock::instant);
                        count += self.fitting(&held, first_ms, count);
                        let left = self.left(first_ms, begun, hurried);
                        let is_full = count < held.rows.len() || count >= self.batching.rows_max;
                        // Rows of an hour that is over are gathered as long as there are others on disk.
                        if is_full || (left.is_zero() && held.is_at_end) {
                            return held.cut(&self.node, count);
                        }
                        Some(left)
                    }
                }
            };
            let changed = async {
                // The senders live as long as this does.
                tokio::select! {
                    _ = moved.changed() => {}
                    _ = hurry.changed() => {}
                }
            };
            match left {
                Some(left) if !left.is_zero() => {
                    let _ = timeout(left, changed).await;
                }
                _ => changed.await,
            }
        }
    }

    /// How many rows behind the first `count` go into the batch that these begin.
    fn fitting(&self, held: &Held, first_ms: i64, count: usize) -> usize {
        let further = held.rows.iter().skip(count);
        let further = further.take(self.batching.rows_max.saturating_sub(count));
        further
            .take_while(|row| self.batching.takes(first_ms, row.row.time_ms))
            .count()
    }

    /// How long a batch may still grow.
    fn left(&self, first_ms: i64, begun: Instant, hurried: Option<Duration>) -> Duration {
        let waited = clock::instant().saturating_duration_since(begun);
        let left = self.batching.left(first_ms, waited, clock::unix_millis());
        hurried.map_or(left, |longest| left.min(longest.saturating_sub(waited)))
    }

    /// From now on no batch waits for further rows for longer than this.
    pub(super) fn hurry(&self, longest: Duration) {
        self.hurry.send_replace(Some(longest));
    }

    /// Waits until the sink has all that is on disk now.
    pub(super) async fn drained(&self) {
        let wanted = (self.on_disk)().unwrap_or(0);
        let mut moved = self.moved.subscribe();
        loop {
            {
                let held = self.held.lock();
                if held.rows.is_empty() && held.has_read(wanted) {
                    return;
                }
            }
            self.asked.notify_one();
            // The sender lives as long as this does.
            let _ = moved.changed().await;
        }
    }

    /// The rows that a filter takes, of all that are on disk when it is asked and that the sink has not acknowledged. It waits until they
    /// have been read, for no longer than `until`.
    pub(super) async fn snapshot(&self, filter: &LogFilter, until: Instant) -> Result<LaneRows, TailBehind> {
        let of_lane = |reached, rows| LaneRows {
            node: self.node.clone(),
            reached,
            rows,
        };
        // The lane is closed: another process has it, and brings its rows to the sink.
        let Some(wanted) = (self.on_disk)() else {
            return Ok(of_lane(0, Vec::new()));
        };
        let mut moved = self.moved.subscribe();
        loop {
            if let Some(rows) = self.held.lock().taken(filter, wanted) {
                return Ok(of_lane(wanted, rows));
            }
            self.asked.notify_one();
            let left = until.saturating_duration_since(clock::instant());
            if left.is_zero() || timeout(left, moved.changed()).await.is_err() {
                return Err(self.behind());
            }
        }
    }
}

impl Tail {
    /// Why some rows are not known.
    fn behind(&self) -> TailBehind {
        let node = self.node.clone();
        if self.held.lock().after.is_none() {
            TailBehind::HomeSilent(node)
        } else {
            TailBehind::Unread(node)
        }
    }
}

impl Held {
    /// Whether all rows before a number have been read, or the sink has them.
    fn has_read(&self, number: u64) -> bool {
        self.after.is_some() && self.read_to >= number
    }

    /// The rows that a filter takes; `None`: it may take some that have not been read, of those before a number.
    fn taken(&self, filter: &LogFilter, number: u64) -> Option<Vec<Arc<NumberedRow>>> {
        let is_before = |unread_ms: i64| filter.until_ms <= unread_ms.saturating_sub(DISORDER_MS);
        if !self.has_read(number) && !self.unread_ms.is_some_and(is_before) {
            return None;
        }
        let may_have = |(first, last): (i64, i64)| first < filter.until_ms && last >= filter.since_ms;
        if !self.times.is_some_and(may_have) {
            return Some(Vec::new());
        }
        let taken = self.rows.iter().filter(|row| filter.takes(&row.row));
        Some(taken.cloned().collect())
    }

    /// The batch of the first rows.
    fn cut(&self, node: &NodeId, count: usize) -> Batch {
        let upto = self.rows.get(count).map_or(self.read_to, |next| next.number);
        Batch {
            node: node.clone(),
            after: self.after.unwrap_or(0),
            upto,
            rows: self.rows.iter().take(count).cloned().collect(),
        }
    }
}

#[cfg(test)]
mod tests;
