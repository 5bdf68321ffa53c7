//! Makes batches of a lane's rows.

use std::{sync::Arc, time::Duration};

use tokio::time::{sleep, timeout};

use crate::{
    edges::{clock, low_priority::LowPriority},
    journal::{Journal, JournalError, NumberedRow, Rows},
    sinks::{
        batching::Batching,
        figures::SinkFigures,
        sink::{Batch, Sink},
    },
};

/// The most rows that one visit to the disk reads.
const READ_ROWS_MAX: usize = 1024;
/// The pause between two visits that found no row enough: rows come every few milliseconds.
const READ_EVERY: Duration = Duration::from_millis(50);

/// A reader of a lane that has read ahead by at most one row.
pub(super) struct Gathering {
    journal: Arc<Journal>,
    sink: &'static str,
    batching: Batching,
    figures: Arc<SinkFigures>,
    /// `None` only while a read is under way, or after one that was cut off.
    rows: Option<Rows>,
    /// Where the next batch begins.
    after: u64,
    /// Read, and not for the batch before.
    ahead: Option<NumberedRow>,
    /// A sink that catches up reads as fast as it can, and no request may wait for that.
    reading: LowPriority,
}

impl Gathering {
    /// For a sink that has all rows before a number.
    pub(super) fn new(journal: Arc<Journal>, sink: &dyn Sink, figures: Arc<SinkFigures>, after: u64) -> Self {
        let rows = Some(journal.rows(after));
        Self {
            journal,
            sink: sink.name(),
            batching: sink.batching(),
            figures,
            rows,
            after,
            ahead: None,
            reading: LowPriority::new(1),
        }
    }

    /// The next batch, as soon as it is complete. Not to be asked again after it was cut off.
    pub(super) async fn next(&mut self) -> Result<Batch, JournalError> {
        let mut rows: Vec<NumberedRow> = self.ahead.take().into_iter().collect();
        let mut begun = clock::instant();
        let upto = loop {
            let found = self.read(&mut rows, &mut begun).await?;
            if let Some(ahead) = &self.ahead {
                break ahead.number;
            }
            let at = self.rows.as_ref().map_or(self.after, Rows::at);
            if rows.len() >= self.batching.rows_max {
                break at;
            }
            if found == READ_ROWS_MAX {
                continue;
            }
            let first_ms = rows.first().map(|first| first.row.time_ms);
            self.figures.lacks(self.journal.node(), first_ms);
            match first_ms {
                None => {
                    // There are no rows up to here that it lacks.
                    self.journal.sink_has(self.sink, at);
                    self.journal.on_disk_beyond(at).await;
                }
                Some(first_ms) => {
                    let waited = clock::instant().saturating_duration_since(begun);
                    let left = self.batching.left(first_ms, waited, clock::unix_millis());
                    if left.is_zero() {
                        break at;
                    }
                    // Woken by whatever comes, and not by each of it.
                    let _ = timeout(left, self.journal.on_disk_beyond(at)).await;
                    sleep(READ_EVERY.min(left)).await;
                }
            }
        };
        self.figures
            .lacks(self.journal.node(), rows.first().map(|first| first.row.time_ms));
        let after = std::mem::replace(&mut self.after, upto);
        Ok(Batch {
            node: self.journal.node().clone(),
            after,
            upto,
            rows,
        })
    }

    /// Reads what is there, up to a limit; says how many rows that were.
    async fn read(
        &mut self,
        rows: &mut Vec<NumberedRow>,
        begun: &mut std::time::Instant,
    ) -> Result<usize, JournalError> {
        let Some(mut reader) = self.rows.take() else {
            return Err(JournalError::NotDurable);
        };
        if rows.is_empty() {
            *begun = clock::instant();
        }
        let (batching, first) = (self.batching, rows.first().map(|first| first.row.time_ms));
        let most = batching.rows_max.saturating_sub(rows.len()).min(READ_ROWS_MAX);
        let read = self.reading.run(move || {
            let read = read(&mut reader, batching, first, most);
            (reader, read)
        });
        let Ok((reader, read)) = read.await else {
            return Err(JournalError::NotDurable);
        };
        self.rows = Some(reader);
        let (mut read, ahead) = read?;
        let count = read.len();
        rows.append(&mut read);
        self.ahead = ahead;
        Ok(count)
    }
}

/// Up to `most` rows for a batch, and the row that is not for it.
fn read(
    reader: &mut Rows,
    batching: Batching,
    first: Option<i64>,
    most: usize,
) -> Result<(Vec<NumberedRow>, Option<NumberedRow>), JournalError> {
    let (mut rows, mut first) = (Vec::new(), first);
    while rows.len() < most {
        let Some(next) = reader.read()? else { break };
        let time_ms = next.row.time_ms;
        if !batching.takes(*first.get_or_insert(time_ms), time_ms) {
            return Ok((rows, Some(next)));
        }
        rows.push(next);
    }
    Ok((rows, None))
}
