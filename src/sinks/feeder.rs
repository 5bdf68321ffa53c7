//! Feeds a sink with the rows of one lane of the journal.

use std::{convert::Infallible, sync::Arc, time::Duration};

use thiserror::Error;
use tokio::{
    sync::watch,
    time::{sleep, timeout},
};

use crate::{
    edges::low_priority::LowPriority,
    journal::{Journal, JournalError},
    sinks::{
        figures::SinkFigures,
        gathering::Gathering,
        sink::{Batch, Sink, SinkError},
    },
};

/// The pause after a failure: at first and at most.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// How long a sink may take for one call before it counts as away. The call is dropped and made again.
const CALL_WAIT: Duration = Duration::from_secs(120);

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
}

impl Feeder {
    /// Feeds the sink from the journal, and counts what comes of it.
    pub(crate) fn new(journal: Arc<Journal>, sink: Arc<dyn Sink>, figures: Arc<SinkFigures>) -> Self {
        figures.may_lack_all(journal.node(), None);
        Self { journal, sink, figures }
    }

    /// Runs until `stopped` turns true or its sender is dropped. A batch that is under way then is there or not; what the sink
    /// lacks it gets at the next start.
    pub(crate) async fn run(self, mut stopped: watch::Receiver<bool>) {
        tokio::select! {
            _ = stopped.wait_for(|stopped| *stopped) => {}
            () = self.feed() => {}
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
        if !self.figures.knows(self.journal.node()) {
            self.look_back().await?;
        }
        let watermark = called(self.sink.watermark(self.journal.node())).await?;
        if self.journal.number_beyond(watermark)? {
            tracing::error!(
                sink = self.sink.name(), node = %self.journal.node(),
                "the sink has rows that this journal has lost: the journal goes on behind them, compare with `weir log verify`"
            );
        }
        self.journal.sink_has(self.sink.name(), watermark);
        let mut gathering = Gathering::new(
            Arc::clone(&self.journal),
            &*self.sink,
            Arc::clone(&self.figures),
            watermark,
        );
        loop {
            let batch = gathering.next().await?;
            self.hand_over(&batch, trouble).await?;
            self.journal.sink_has(self.sink.name(), batch.upto);
        }
    }

    /// Notes the age of the oldest row: it is what the sink may lack until it has said what it has. A sink that has been away since
    /// the start would be taken for one that lacks nothing.
    async fn look_back(&self) -> Result<(), FeedError> {
        let mut rows = self.journal.rows(0);
        let reading = LowPriority::new(1);
        let read = reading.run(move || rows.read()).await;
        let oldest = read.map_err(|_| JournalError::NotDurable)??;
        self.figures
            .may_lack_all(self.journal.node(), oldest.map(|oldest| oldest.row.time_ms));
        Ok(())
    }

    /// Hands a batch over as often as it takes: a second time changes nothing.
    async fn hand_over(&self, batch: &Batch, trouble: &mut Trouble) -> Result<(), FeedError> {
        loop {
            match called(self.sink.append(batch)).await {
                Ok(()) => {
                    self.figures.took(batch.rows.len());
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
        if trouble.begins() {
            tracing::warn!(
                sink = self.sink.name(), node = %self.journal.node(), %error,
                "the sink lacks rows; the journal keeps them, and it is tried again"
            );
        }
    }
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
