//! The tail of a lane: the rows that were read from the journal and that a sink has not acknowledged.
//!
//! One task reads rows from the disk into the tail, up to a limit. Another task takes batches from the front and hands them to
//! the sink. Rows are removed only after the sink has acknowledged them. Therefore, a reader that first reads the tail and then
//! the sink finds every row.

#[cfg(test)]
mod tests;

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
    domain::ledger::{NodeId, log_query::LogFilter},
    edges::clock,
    journal::{Journal, NumberedRow},
    sinks::{Batch, BatchLimits, DISORDER_MS},
};

/// The reason why a reader cannot get all rows of a lane: this process does not have some of them yet.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(crate) enum TailBehind {
    /// The log backend has not reported its watermark of the lane, so weir does not know which row of the journal it must read
    /// first.
    #[error(
        "the log backend cannot be read: since the start of this process, the backend has not reported which rows of lane {0} it has"
    )]
    BackendSilent(NodeId),
    /// Some rows that the log backend lacks have not been read from the disk yet.
    #[error(
        "cannot read all rows of lane {0}: some rows are not in the log backend, and weir has not read them from the journal yet, because there are very many of them or the disk is slow"
    )]
    Unread(NodeId),
}

/// Rows of a lane that match a filter and that the sink has not acknowledged.
#[derive(Clone, Debug)]
pub(super) struct LaneRows {
    /// The lane of the rows.
    pub(super) node: NodeId,
    /// A number. All matching rows of the lane with lower numbers are in `rows` or in the sink.
    pub(super) reached: u64,
    /// The rows, in the order of their numbers.
    pub(super) rows: Vec<Arc<NumberedRow>>,
}

/// The rows of a lane that the sink has not acknowledged.
pub(crate) struct LogTail {
    node: NodeId,
    batching: BatchLimits,
    /// Returns a number. All rows of the lane with lower numbers are on disk. `None` if the lane is closed.
    on_disk: Box<dyn Fn() -> Option<u64> + Send + Sync>,
    state: Mutex<TailState>,
    /// Marked as changed whenever `state` changes.
    moved: watch::Sender<()>,
    /// Notified when there may be room for further rows.
    room: Notify,
    /// Notified when a reader begins to wait for the rows on disk to be read.
    reader_waiting: Notify,
    /// The maximum time for which a batch waits for further rows. `None` for the sink's own limit.
    hurry: watch::Sender<Option<Duration>>,
}

/// The rows of a [`LogTail`], and the range of numbers that they cover.
#[derive(Default)]
struct TailState {
    /// The rows, in the order of their numbers.
    rows: VecDeque<Arc<NumberedRow>>,
    /// The sink's watermark. `None` until the sink has reported it.
    after: Option<u64>,
    /// The number up to which the lane has been read. All rows of the lane with numbers from `after` up to but not including this
    /// number are in `rows`.
    read_to: u64,
    /// Whether the most recent reading found no further rows on disk.
    is_at_end: bool,
    /// A time in milliseconds since the Unix epoch. No request with an unread row ended more than [`DISORDER_MS`] before this
    /// time. `None` if no such time is known.
    unread_ms: Option<i64>,
    /// A range that contains the end times of all rows, in milliseconds since the Unix epoch. `None` if there are no rows.
    times: Option<(i64, i64)>,
}

impl LogTail {
    /// Creates the tail of the lane that `journal` writes.
    pub(super) fn for_journal(journal: &Arc<Journal>, batching: BatchLimits) -> Self {
        let lane: Weak<Journal> = Arc::downgrade(journal);
        let on_disk = move || lane.upgrade().map(|journal| journal.decided_number());
        Self::new(journal.node().clone(), batching, Box::new(on_disk))
    }

    /// Creates the tail of the lane `node`. `on_disk` returns a number, and all rows of the lane with lower numbers are on disk.
    pub(super) fn new(
        node: NodeId,
        batching: BatchLimits,
        on_disk: Box<dyn Fn() -> Option<u64> + Send + Sync>,
    ) -> Self {
        Self {
            node,
            batching,
            on_disk,
            state: Mutex::default(),
            moved: watch::Sender::new(()),
            room: Notify::new(),
            reader_waiting: Notify::new(),
            hurry: watch::Sender::new(None),
        }
    }

    /// Restarts at the sink's watermark `after`, from which rows must be read again. No request with a row in the journal ended
    /// more than [`DISORDER_MS`] before `oldest_ms`. `oldest_ms` is `None` if the journal has no row.
    pub(super) fn reset(&self, after: u64, oldest_ms: Option<i64>) {
        *self.state.lock() = TailState {
            after: Some(after),
            read_to: after,
            unread_ms: oldest_ms,
            ..TailState::default()
        };
        self.moved.send_replace(());
    }

    /// Returns the number of rows that can be added now. At most two batches are in memory.
    pub(super) fn room(&self) -> usize {
        let most = self.batching.rows_max.saturating_mul(2);
        most.saturating_sub(self.state.lock().rows.len())
    }

    /// Waits until there may be room for further rows.
    pub(super) async fn wait_for_room(&self) {
        self.room.notified().await;
    }

    /// Waits until a reader needs the rows that are on disk.
    pub(super) async fn wait_for_reader(&self) {
        self.reader_waiting.notified().await;
    }

    /// Adds the next rows. All rows with numbers below `read_to` have been read. `is_at_end` is true if the disk has no further
    /// rows.
    pub(super) fn push(&self, rows: Vec<NumberedRow>, read_to: u64, is_at_end: bool) {
        let mut held = self.state.lock();
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

    /// Removes the rows with numbers below `upto`, because the sink has acknowledged them. `upto` is the end of a batch.
    pub(super) fn acknowledge(&self, upto: u64) {
        let mut held = self.state.lock();
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

    /// Returns a number. The sink has all rows of the lane with lower numbers. If the sink has acknowledged all rows that were
    /// read, this number can be higher than the sink's watermark.
    pub(super) fn sink_position(&self) -> u64 {
        let held = self.state.lock();
        let after = held.after.unwrap_or(0);
        if held.rows.is_empty() {
            held.read_to.max(after)
        } else {
            after
        }
    }

    /// Returns the end time of the oldest row that the sink lacks, in milliseconds since the Unix epoch. Returns `Some(None)` if
    /// the sink has all rows, and `None` if this is not known.
    pub(super) fn oldest_lacking_ms(&self) -> Option<Option<i64>> {
        let held = self.state.lock();
        match held.rows.front() {
            Some(first) => Some(Some(first.row.time_ms)),
            None => held.is_at_end.then_some(None),
        }
    }

    /// Waits until the next batch is complete, and returns it. The batch begins where the most recently acknowledged one ends.
    pub(super) async fn next_batch(&self) -> Batch {
        let (mut moved, mut hurry) = (self.moved.subscribe(), self.hurry.subscribe());
        let (mut begun, mut count) = (None, 0);
        loop {
            moved.borrow_and_update();
            let hurried = *hurry.borrow_and_update();
            let left = {
                let held = self.state.lock();
                match held.rows.front().map(|first| first.row.time_ms) {
                    None => None,
                    Some(first_ms) => {
                        let begun = *begun.get_or_insert_with(clock::instant);
                        count += self.fitting(&held, first_ms, count);
                        let left = self.remaining_wait(first_ms, begun, hurried);
                        let is_full = count < held.rows.len() || count >= self.batching.rows_max;
                        // Even when its time is over, a batch is not complete while more rows are on disk.
                        if is_full || (left.is_zero() && held.is_at_end) {
                            return held.batch(&self.node, count);
                        }
                        Some(left)
                    }
                }
            };
            let changed = async {
                // Both senders live as long as `self`.
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

    /// Returns how many further rows fit into the batch, which already contains the first `count` rows.
    fn fitting(&self, held: &TailState, first_ms: i64, count: usize) -> usize {
        let further = held.rows.iter().skip(count);
        let further = further.take(self.batching.rows_max.saturating_sub(count));
        further
            .take_while(|row| self.batching.fits(first_ms, row.row.time_ms))
            .count()
    }

    /// Returns how long a batch may still wait for rows. `begun` is when it began to wait.
    fn remaining_wait(&self, first_ms: i64, begun: Instant, hurried: Option<Duration>) -> Duration {
        let waited = clock::instant().saturating_duration_since(begun);
        let left = self.batching.remaining_wait(first_ms, waited, clock::unix_millis());
        hurried.map_or(left, |longest| left.min(longest.saturating_sub(waited)))
    }

    /// Limits the time for which batches wait for rows, from now on.
    pub(super) fn hurry(&self, longest: Duration) {
        self.hurry.send_replace(Some(longest));
    }

    /// Waits until the sink has all rows that are on disk now.
    pub(super) async fn wait_until_drained(&self) {
        let wanted = (self.on_disk)().unwrap_or(0);
        let mut moved = self.moved.subscribe();
        loop {
            {
                let held = self.state.lock();
                if held.rows.is_empty() && held.has_read(wanted) {
                    return;
                }
            }
            self.reader_waiting.notify_one();
            // The sender lives as long as `self`.
            let _ = moved.changed().await;
        }
    }

    /// Returns the rows that match `filter`, are on disk now and have not been acknowledged by the sink. Waits until all rows
    /// that are on disk now have been read, and fails if some of them have not been read by `until`.
    pub(super) async fn snapshot(&self, filter: &LogFilter, until: Instant) -> Result<LaneRows, TailBehind> {
        let of_lane = |reached, rows| LaneRows {
            node: self.node.clone(),
            reached,
            rows,
        };
        // If the lane is closed, another process has it and feeds its rows to the sink.
        let Some(wanted) = (self.on_disk)() else {
            return Ok(of_lane(0, Vec::new()));
        };
        let mut moved = self.moved.subscribe();
        loop {
            if let Some(rows) = self.state.lock().matching(filter, wanted) {
                return Ok(of_lane(wanted, rows));
            }
            self.reader_waiting.notify_one();
            let left = until.saturating_duration_since(clock::instant());
            if left.is_zero() || timeout(left, moved.changed()).await.is_err() {
                return Err(self.why_behind());
            }
        }
    }
}

impl LogTail {
    /// Returns the reason why not all rows have been read.
    fn why_behind(&self) -> TailBehind {
        let node = self.node.clone();
        if self.state.lock().after.is_none() {
            TailBehind::BackendSilent(node)
        } else {
            TailBehind::Unread(node)
        }
    }
}

impl TailState {
    /// Returns whether all rows with numbers below `number` have been read or are in the sink.
    fn has_read(&self, number: u64) -> bool {
        self.after.is_some() && self.read_to >= number
    }

    /// Returns the rows that match a filter. `None` if unread rows with numbers below `number` may match it too.
    fn matching(&self, filter: &LogFilter, number: u64) -> Option<Vec<Arc<NumberedRow>>> {
        let is_before = |unread_ms: i64| filter.until_ms <= unread_ms.saturating_sub(DISORDER_MS);
        if !self.has_read(number) && !self.unread_ms.is_some_and(is_before) {
            return None;
        }
        let may_have = |(first, last): (i64, i64)| first < filter.until_ms && last >= filter.since_ms;
        if !self.times.is_some_and(may_have) {
            return Some(Vec::new());
        }
        let taken = self.rows.iter().filter(|row| filter.matches(&row.row));
        Some(taken.cloned().collect())
    }

    /// Returns the batch of the first `count` rows.
    fn batch(&self, node: &NodeId, count: usize) -> Batch {
        let upto = self.rows.get(count).map_or(self.read_to, |next| next.number);
        Batch {
            node: node.clone(),
            after: self.after.unwrap_or(0),
            upto,
            rows: self.rows.iter().take(count).cloned().collect(),
        }
    }
}

/// The maximum time for which a reader waits until the rows on disk have been read.
const WAIT: Duration = Duration::from_secs(2);
/// The maximum time for which a batch waits for rows after [`LogTails::hurry`].
const HURRIED: Duration = Duration::from_secs(1);

/// The tails of all lanes whose rows this process feeds to the log backend.
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
    /// Creates an empty collection, whose readers wait for at most `wait`.
    #[cfg(test)]
    pub(super) fn waiting(wait: Duration) -> Self {
        Self {
            wait,
            ..Self::default()
        }
    }

    /// Adds the tail of a lane. It is removed when the lane's feeder ends.
    pub(crate) fn add(&self, tail: &Arc<LogTail>) {
        let mut tails = self.tails.lock();
        tails.retain(|tail| tail.strong_count() > 0);
        tails.push(Arc::downgrade(tail));
    }

    /// Returns the rows of all tails that match a filter. Rows that leave a tail after this call are in the log backend, so the
    /// caller must read the log backend afterwards.
    pub(super) async fn snapshot(&self, filter: &LogFilter) -> Result<Vec<Arc<NumberedRow>>, TailBehind> {
        let until = clock::instant() + self.wait;
        let mut rows = Vec::new();
        for tail in self.all() {
            rows.extend(tail.snapshot(filter, until).await?.rows);
        }
        Ok(rows)
    }

    /// Returns the rows of all tails that match a filter, by lane. Lanes whose rows have not all been read are left out.
    pub(super) async fn by_lane(&self, filter: &LogFilter) -> Vec<LaneRows> {
        let until = clock::instant() + self.wait;
        let mut lanes = Vec::new();
        for tail in self.all() {
            lanes.extend(tail.snapshot(filter, until).await.ok());
        }
        lanes
    }

    /// Makes all rows reach the log backend within a second, from now on. Called when another process reads the log, because that
    /// process does not see these tails.
    pub(crate) fn hurry(&self) {
        for tail in self.all() {
            tail.hurry(HURRIED);
        }
    }

    fn all(&self) -> Vec<Arc<LogTail>> {
        self.tails.lock().iter().filter_map(Weak::upgrade).collect()
    }
}
