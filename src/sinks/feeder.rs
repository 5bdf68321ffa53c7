//! Feeds a sink with the rows of one lane of the journal.

use std::{convert::Infallible, pin::pin, sync::Arc, time::Duration};

use thiserror::Error;
use tokio::{
    sync::watch,
    time::{sleep, timeout},
};

use crate::{
    edges::low_priority::LowPriorityThreads,
    journal::{Journal, JournalError, NumberedRow, RowReader},
    sinks::{Batch, Sink, SinkError, SinkStats, tail::LogTail},
};

/// The pause after the first failure, and the maximum pause after further consecutive failures.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// The timeout of one call of the sink. A call that exceeds it is dropped and repeated.
const CALL_WAIT: Duration = Duration::from_secs(120);
/// The maximum time for which the feeder continues to hand over rows after it was told to stop. The journal retains the rows that
/// are not handed over.
const LAST_WAIT: Duration = Duration::from_secs(1);
/// The maximum number of rows that are read from the disk at once.
const READ_ROWS_MAX: usize = 1024;
/// The pause after all rows on disk have been read. The pause ends early if a reader of the log waits for rows. Without the
/// pause, rows would be read every few milliseconds.
const READ_EVERY: Duration = Duration::from_millis(50);

/// A failure after which feeding restarts at the sink's watermark.
#[derive(Debug, Error)]
enum FeedError {
    #[error(transparent)]
    Journal(#[from] JournalError),
    #[error(transparent)]
    Sink(#[from] SinkError),
}

/// Reads the rows of one lane of the journal and hands them to one sink.
pub(crate) struct Feeder {
    journal: Arc<Journal>,
    sink: Arc<dyn Sink>,
    stats: Arc<SinkStats>,
    tail: Arc<LogTail>,
    /// Whether the most recent call of the sink failed.
    fails: watch::Sender<bool>,
}

impl Feeder {
    /// Creates the feeder that passes the rows of `journal` to `sink` and reports its progress to `stats`.
    pub(crate) fn new(journal: Arc<Journal>, sink: Arc<dyn Sink>, stats: Arc<SinkStats>) -> Self {
        stats.set_lag_unknown(journal.node(), None);
        let tail = Arc::new(LogTail::for_journal(&journal, sink.batching()));
        Self {
            journal,
            sink,
            stats,
            tail,
            fails: watch::Sender::new(false),
        }
    }

    /// Returns the rows that were read from the journal and that the sink has not acknowledged.
    pub(crate) fn tail(&self) -> &Arc<LogTail> {
        &self.tail
    }

    /// Feeds the sink until `stopped` turns true or the sender of `stopped` is dropped. Then continues until the sink has all
    /// rows on disk or a call of the sink has failed, but for at most one second. If a batch is still being handed over when this
    /// function returns, it is not known whether the sink stores the batch. The next process learns this from the sink's
    /// watermark.
    pub(crate) async fn run(self, mut stopped: watch::Receiver<bool>) {
        let mut feeding = pin!(self.feed());
        tokio::select! {
            _ = stopped.wait_for(|stopped| *stopped) => {}
            () = &mut feeding => {}
        }
        self.tail.hurry(Duration::ZERO);
        let mut fails = self.fails.subscribe();
        tokio::select! {
            () = feeding => {}
            () = self.tail.wait_until_drained() => {}
            _ = fails.wait_for(|fails| *fails) => {}
            () = sleep(LAST_WAIT) => {}
        }
        self.stats.remove_lane(self.journal.node());
    }

    async fn feed(&self) {
        let mut trouble = FailureBackoff::default();
        loop {
            let Err(error) = self.feed_from_watermark(&mut trouble).await;
            self.record_failure(&mut trouble, &error);
            trouble.back_off().await;
        }
    }

    /// Feeds the sink from its watermark on. Returns after a failure that makes it necessary to fetch the watermark again.
    async fn feed_from_watermark(&self, trouble: &mut FailureBackoff) -> Result<Infallible, FeedError> {
        let oldest_ms = self.oldest_row_ms().await?;
        if !self.stats.is_lag_known(self.journal.node()) {
            // Without this, a sink that has been unreachable since the start would be reported as lacking nothing.
            self.stats.set_lag_unknown(self.journal.node(), oldest_ms);
        }
        let watermark = with_call_timeout(self.sink.watermark(self.journal.node())).await?;
        if self.journal.raise_numbers(watermark)? {
            tracing::error!(
                sink = self.sink.name(), node = %self.journal.node(),
                "the journal has lost rows that the sink has: new rows get higher numbers than the lost ones; run `weir log verify`"
            );
        }
        self.journal.set_sink_position(self.sink.name(), watermark);
        self.tail.reset(watermark, oldest_ms);
        tokio::select! {
            read = self.read_from(watermark) => read.map_err(FeedError::from),
            handed = self.hand_over_all(trouble) => handed,
        }
    }

    /// Returns the time at which the request of the journal's oldest row ended, in milliseconds since the Unix epoch. `None` if
    /// the journal has no row.
    async fn oldest_row_ms(&self) -> Result<Option<i64>, JournalError> {
        let mut rows = self.journal.rows(0);
        let reading = LowPriorityThreads::new(1);
        let read = reading.run(move || rows.read()).await;
        let oldest = read.map_err(|_| JournalError::NotDurable)??;
        Ok(oldest.map(|oldest| oldest.row.time_ms))
    }

    /// Reads the rows on disk from `number` on, and adds them to the tail. Waits when the tail has no room. Returns only if there
    /// is an error.
    async fn read_from(&self, number: u64) -> Result<Infallible, JournalError> {
        // For a sink that catches up, rows are read as fast as possible. They are read with low priority, so that requests do
        // not wait.
        let reading = LowPriorityThreads::new(1);
        let mut rows = self.journal.rows(number);
        loop {
            let most = self.tail.room().min(READ_ROWS_MAX);
            if most == 0 {
                self.tail.wait_for_room().await;
                continue;
            }
            let work = reading.run(move || {
                let read = read(&mut rows, most);
                (rows, read)
            });
            let Ok((same, read)) = work.await else {
                return Err(JournalError::NotDurable);
            };
            rows = same;
            let read = read?;
            let (at, is_at_end) = (rows.next_number(), read.len() < most);
            self.tail.push(read, at, is_at_end);
            self.report_position();
            if is_at_end {
                self.journal.wait_until_decided(at).await;
                let _ = timeout(READ_EVERY, self.tail.wait_for_reader()).await;
            }
        }
    }

    /// Hands over one batch after another. Returns only if there is an error.
    async fn hand_over_all(&self, trouble: &mut FailureBackoff) -> Result<Infallible, FeedError> {
        loop {
            let batch = self.tail.next_batch().await;
            self.hand_over(&batch, trouble).await?;
            self.tail.acknowledge(batch.upto);
            self.report_position();
        }
    }

    /// Reports the sink's watermark to the journal. Reports to the statistics the time at which the request of the sink's oldest
    /// missing row ended.
    fn report_position(&self) {
        self.journal
            .set_sink_position(self.sink.name(), self.tail.sink_position());
        if let Some(from_ms) = self.tail.oldest_lacking_ms() {
            self.stats.set_lag(self.journal.node(), from_ms);
        }
    }

    /// Hands over a batch. Repeats this until the sink acknowledges the batch. Repetitions are safe, because a sink stores a
    /// batch only once.
    async fn hand_over(&self, batch: &Batch, trouble: &mut FailureBackoff) -> Result<(), FeedError> {
        loop {
            match with_call_timeout(self.sink.append(batch)).await {
                Ok(()) => {
                    self.stats.record_rows(batch.rows.len());
                    self.fails.send_replace(false);
                    if trouble.clear() {
                        tracing::info!(sink = self.sink.name(), node = %batch.node, "the sink accepts rows again");
                    }
                    return Ok(());
                }
                Err(SinkError::Unavailable(why)) => {
                    self.record_failure(trouble, &SinkError::Unavailable(why).into());
                    trouble.back_off().await;
                }
                Err(error @ SinkError::OutOfOrder { .. }) => return Err(error.into()),
            }
        }
    }

    fn record_failure(&self, trouble: &mut FailureBackoff, error: &FeedError) {
        self.stats.record_failure();
        self.fails.send_replace(true);
        if trouble.is_first() {
            tracing::warn!(
                sink = self.sink.name(), node = %self.journal.node(), %error,
                "cannot hand over rows to the sink; the journal keeps the rows, and weir tries again"
            );
        }
    }
}

/// Reads the next rows, at most `most`.
fn read(rows: &mut RowReader, most: usize) -> Result<Vec<NumberedRow>, JournalError> {
    let mut read = Vec::new();
    while read.len() < most {
        let Some(row) = rows.read()? else { break };
        read.push(row);
    }
    Ok(read)
}

async fn with_call_timeout<T>(call: impl Future<Output = Result<T, SinkError>>) -> Result<T, SinkError> {
    timeout(CALL_WAIT, call).await.unwrap_or_else(|_| {
        let why = format!("the sink did not respond within {} s", CALL_WAIT.as_secs());
        Err(SinkError::Unavailable(why))
    })
}

/// The pause before the next attempt. It doubles with each consecutive failure.
#[derive(Default)]
struct FailureBackoff {
    /// The most recent pause. `None` if nothing has failed since the most recent success.
    pause: Option<Duration>,
}

impl FailureBackoff {
    /// Returns whether the current failure is the first one since a success. Only the first one is logged.
    fn is_first(&self) -> bool {
        self.pause.is_none()
    }

    /// Records a success. Returns whether there was a failure before it.
    fn clear(&mut self) -> bool {
        self.pause.take().is_some()
    }

    /// Waits twice as long as the previous time, at most [`PAUSE_MAX`].
    async fn back_off(&mut self) {
        let pause = self
            .pause
            .map_or(PAUSE_MIN, |pause| pause.saturating_mul(2).min(PAUSE_MAX));
        self.pause = Some(pause);
        sleep(pause).await;
    }
}

#[cfg(test)]
mod tests;
