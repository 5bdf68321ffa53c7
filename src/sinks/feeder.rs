//! Feeds a sink with the rows of one lane of the journal.

use std::{convert::Infallible, pin::pin, sync::Arc, time::Duration};

use thiserror::Error;
use tokio::{
    sync::watch,
    time::{sleep, timeout},
};

use crate::{
    edges::low_priority::LowPriority,
    journal::{Journal, JournalError, NumberedRow, Rows},
    sinks::{
        figures::SinkFigures,
        sink::{Batch, Sink, SinkError},
        tail::Tail,
    },
};

/// The pause after a failure: at first and at most.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// How long a sink may take for one call before it counts as away. The call is dropped and made again.
const CALL_WAIT: Duration = Duration::from_secs(120);
/// How long the last rows may take to reach the sink when the lane is left. They are in the journal anyway.
const LAST_WAIT: Duration = Duration::from_secs(1);
/// The most rows that one visit to the disk reads.
const READ_ROWS_MAX: usize = 1024;
/// The pause between two visits that found few rows, unless somebody asks for them: rows come every few milliseconds.
const READ_EVERY: Duration = Duration::from_millis(50);

/// Why feeding has to begin anew.
#[derive(Debug, Error)]
enum FeedError {
    #[error(transparent)]
    Journal(#[from] JournalError),
    #[error(transparent)]
    Sink(#[from] SinkError),
}

/// The task that feeds a sink from a lane.
pub(crate) struct Feeder {
    journal: Arc<Journal>,
    sink: Arc<dyn Sink>,
    figures: Arc<SinkFigures>,
    tail: Arc<Tail>,
    /// Whether the last call has failed.
    fails: watch::Sender<bool>,
}

impl Feeder {
    /// Feeds the sink from the journal, and counts what comes of it.
    pub(crate) fn new(journal: Arc<Journal>, sink: Arc<dyn Sink>, figures: Arc<SinkFigures>) -> Self {
        figures.may_lack_all(journal.node(), None);
        let tail = Arc::new(Tail::of_journal(&journal, sink.batching()));
        Self {
            journal,
            sink,
            figures,
            tail,
            fails: watch::Sender::new(false),
        }
    }

    /// The rows that it has read and the sink has not acknowledged.
    pub(crate) fn tail(&self) -> &Arc<Tail> {
        &self.tail
    }

    /// Runs until `stopped` turns true or its sender is dropped, and then until the sink has what is on disk, if it takes that within a
    /// second. A batch that is under way then is there or not; what the sink lacks it gets at the next start.
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
            () = self.tail.drained() => {}
            _ = fails.wait_for(|fails| *fails) => {}
            () = sleep(LAST_WAIT) => {}
        }
        self.figures.left(self.journal.node());
    }

    async fn feed(&self) {
        let mut trouble = Trouble::default();
        loop {
            let Err(error) = self.feed_on(&mut trouble).await;
            self.note(&mut trouble, &error);
            trouble.rest().await;
        }
    }

    /// Feeds from where the sink is, until something fails that makes it necessary to ask it again.
    async fn feed_on(&self, trouble: &mut Trouble) -> Result<Infallible, FeedError> {
        let oldest_ms = self.oldest().await?;
        if !self.figures.knows(self.journal.node()) {
            // What the sink may lack until it has said what it has. One that has been away since the start would be taken for one
            // that lacks nothing.
            self.figures.may_lack_all(self.journal.node(), oldest_ms);
        }
        let watermark = called(self.sink.watermark(self.journal.node())).await?;
        if self.journal.number_beyond(watermark)? {
            tracing::error!(
                sink = self.sink.name(), node = %self.journal.node(),
                "the sink has rows that this journal has lost: the journal goes on behind them, compare with `weir log verify`"
            );
        }
        self.journal.sink_has(self.sink.name(), watermark);
        self.tail.begin(watermark, oldest_ms);
        tokio::select! {
            read = self.read_from(watermark) => read.map_err(FeedError::from),
            handed = self.hand_on(trouble) => handed,
        }
    }

    /// When the oldest row of the journal ended.
    async fn oldest(&self) -> Result<Option<i64>, JournalError> {
        let mut rows = self.journal.rows(0);
        let reading = LowPriority::new(1);
        let read = reading.run(move || rows.read()).await;
        let oldest = read.map_err(|_| JournalError::NotDurable)??;
        Ok(oldest.map(|oldest| oldest.row.time_ms))
    }

    /// Reads what is on disk into the tail, as far as there is room.
    async fn read_from(&self, number: u64) -> Result<Infallible, JournalError> {
        // A sink that catches up has rows read as fast as can be, and no request may wait for that.
        let reading = LowPriority::new(1);
        let mut rows = self.journal.rows(number);
        loop {
            let most = self.tail.room().min(READ_ROWS_MAX);
            if most == 0 {
                self.tail.has_room().await;
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
            let (at, is_at_end) = (rows.at(), read.len() < most);
            self.tail.push(read, at, is_at_end);
            self.tell();
            if is_at_end {
                self.journal.on_disk_beyond(at).await;
                let _ = timeout(READ_EVERY, self.tail.is_asked()).await;
            }
        }
    }

    /// Hands on batch after batch.
    async fn hand_on(&self, trouble: &mut Trouble) -> Result<Infallible, FeedError> {
        loop {
            let batch = self.tail.batch().await;
            self.hand_over(&batch, trouble).await?;
            self.tail.acknowledged(batch.upto);
            self.tell();
        }
    }

    /// Tells journal and figures how far the sink is.
    fn tell(&self) {
        self.journal.sink_has(self.sink.name(), self.tail.passed());
        if let Some(from_ms) = self.tail.lacks() {
            self.figures.lacks(self.journal.node(), from_ms);
        }
    }

    /// Hands a batch over as often as it takes: a second time changes nothing.
    async fn hand_over(&self, batch: &Batch, trouble: &mut Trouble) -> Result<(), FeedError> {
        loop {
            match called(self.sink.append(batch)).await {
                Ok(()) => {
                    self.figures.took(batch.rows.len());
                    self.fails.send_replace(false);
                    if trouble.over() {
                        tracing::info!(sink = self.sink.name(), node = %batch.node, "the sink takes rows again");
                    }
                    return Ok(());
                }
                Err(SinkError::Unavailable(why)) => {
                    self.note(trouble, &SinkError::Unavailable(why).into());
                    trouble.rest().await;
                }
                Err(error @ SinkError::OutOfOrder { .. }) => return Err(error.into()),
            }
        }
    }

    fn note(&self, trouble: &mut Trouble, error: &FeedError) {
        self.figures.failed();
        self.fails.send_replace(true);
        if trouble.begins() {
            tracing::warn!(
                sink = self.sink.name(), node = %self.journal.node(), %error,
                "the sink lacks rows; the journal keeps them, and it is tried again"
            );
        }
    }
}

/// The next rows, at most so many.
fn read(rows: &mut Rows, most: usize) -> Result<Vec<NumberedRow>, JournalError> {
    let mut read = Vec::new();
    while read.len() < most {
        let Some(row) = rows.read()? else { break };
        read.push(row);
    }
    Ok(read)
}

async fn called<T>(call: impl Future<Output = Result<T, SinkError>>) -> Result<T, SinkError> {
    timeout(CALL_WAIT, call).await.unwrap_or_else(|_| {
        let why = format!("no answer within {} s", CALL_WAIT.as_secs());
        Err(SinkError::Unavailable(why))
    })
}

/// How long it has failed already.
#[derive(Default)]
struct Trouble {
    /// The last pause; `None`: nothing has failed since the last success.
    pause: Option<Duration>,
}

impl Trouble {
    /// Whether this failure is the first since a success: it is said aloud.
    fn begins(&self) -> bool {
        self.pause.is_none()
    }

    /// Something has worked. Says whether it had not before.
    fn over(&mut self) -> bool {
        self.pause.take().is_some()
    }

    /// Waits, twice as long as the last time.
    async fn rest(&mut self) {
        let pause = self
            .pause
            .map_or(PAUSE_MIN, |pause| pause.saturating_mul(2).min(PAUSE_MAX));
        self.pause = Some(pause);
        sleep(pause).await;
    }
}

#[cfg(test)]
mod tests;
