//! The positions of the sinks that read the journal, and the rows for them.

use std::sync::{Arc, atomic::Ordering};

use crate::{
    domain::{
        faults::stability::{Hour, NodeHourCounters},
        ledger::{AccountChange, Record, consumption::Row},
    },
    edges::clock,
    journal::{
        JournalEngine, JournalError, Position,
        frame::{HEADER, JournalRecordReader, ReadScope},
        handle::Journal,
    },
};

/// The percentage of free disk space below which the journal removes rows that only optional sinks lack.
const SHORT_PERCENT: u64 = 5;

impl Journal {
    /// Sets a sink's position: the sink has all rows with lower numbers. If the sink has lost rows, its position can decrease.
    pub(crate) fn set_sink_position(&self, sink: &str, number: u64) {
        if let Some(holder) = self.engine.lock().contents.retainers.get_mut(sink) {
            holder.passed = Position::from_number(number);
        }
    }

    /// Returns a sink's last reported position: the sink had all rows with lower numbers. 0 if the sink is unknown.
    pub(crate) fn sink_position(&self, sink: &str) -> u64 {
        let state = self.engine.lock();
        let holder = state.contents.retainers.get(sink);
        holder.map_or(0, |holder| holder.passed.number())
    }

    /// Returns how many rows were removed before this optional sink had read them. The count begins at the start of the process.
    /// Such rows are removed only if the disk is nearly full.
    pub(crate) fn sink_dropped_rows(&self, sink: &str) -> u64 {
        let state = self.engine.lock();
        state.contents.retainers.get(sink).map_or(0, |holder| holder.dropped)
    }

    /// Returns the number of bytes that the journal contains after a sink's position.
    pub(crate) fn sink_lag_bytes(&self, sink: &str) -> u64 {
        let state = self.engine.lock();
        let Some(passed) = state.contents.retainers.get(sink).map(|holder| holder.passed) else {
            return 0;
        };
        let segments = state.contents.segments.range(passed.segment..);
        segments
            .map(|(number, segment)| {
                let has = if *number == passed.segment {
                    passed.offset
                } else {
                    HEADER as u64
                };
                segment.end.saturating_sub(has)
            })
            .sum()
    }
}

impl JournalEngine {
    /// Whether the disk is nearly full; `false` if that cannot be determined.
    pub(super) fn is_disk_short(&self) -> bool {
        let free = self.disk.free_percent(&self.folder.path);
        free.is_ok_and(|percent| percent < SHORT_PERCENT)
    }

    /// Counts the rows in segments that are about to be removed, separately for each sink that lacks some of these rows.
    pub(super) fn count_dropped(self: &Arc<Self>, numbers: &[u64]) {
        for number in numbers {
            let last = {
                let state = self.lock();
                state.contents.segments.get(number).and_then(|segment| segment.last_row)
            };
            let Some(offset) = last else { continue };
            let last = Position {
                segment: *number,
                offset,
            };
            let behind = self.lock().contents.retainers.lagging(last);
            for (sink, passed) in behind {
                let rows = self.count_rows(*number, passed);
                tracing::error!(
                    sink, rows, segment = %self.folder.segment(*number).display(),
                    "the journal's disk is nearly full: rows that this optional sink lacks are removed from the journal, so the sink never gets them"
                );
                if let Some(holder) = self.lock().contents.retainers.get_mut(sink) {
                    holder.dropped = holder.dropped.saturating_add(rows);
                }
            }
        }
    }

    /// Counts the rows of a segment from a position onwards, as far as they can be read.
    fn count_rows(self: &Arc<Self>, number: u64, from: Position) -> u64 {
        let begin = Position {
            segment: number,
            offset: HEADER as u64,
        };
        let mut reader = JournalRecordReader::new(Arc::clone(self), from.max(begin), ReadScope::StepsOnDisk);
        let mut rows = 0;
        loop {
            match reader.read() {
                Ok(Some((at, record))) if at.segment == number => rows += u64::from(row_of(record).is_some()),
                Ok(_) => return rows,
                Err(_) => {
                    self.failures.fetch_add(1, Ordering::Relaxed);
                    return rows;
                }
            }
        }
    }
}

/// A row, with its number in its lane of the journal.
#[derive(Clone, Debug, PartialEq)]
pub struct NumberedRow {
    /// The row's number, which is greater than the number of every earlier row in the lane.
    pub number: u64,
    /// The row as it is written to the consumption log.
    pub row: Row,
}

/// Reads rows in the order of their numbers. Reading blocks on the disk, but usually only briefly.
pub(crate) struct RowReader(JournalRecordReader);

impl RowReader {
    /// Reads the next row; `None` if no further row is on disk yet. It is possible that the store does not have the row yet.
    ///
    /// # Errors
    /// A segment cannot be read. The next call tries again.
    pub(crate) fn read(&mut self) -> Result<Option<NumberedRow>, JournalError> {
        while let Some((position, record)) = self.0.read()? {
            if let Some(row) = row_of(record) {
                let number = position.number();
                return Ok(Some(NumberedRow { number, row }));
            }
        }
        Ok(None)
    }

    /// Returns a row number: the reader has read all rows with lower numbers.
    pub(crate) fn next_number(&self) -> u64 {
        self.0.position().number()
    }
}

/// Returns the row of a record; `None` if the record has no row.
pub(super) fn row_of(record: Record) -> Option<Row> {
    let Record::Step { step, .. } = record else { return None };
    match step.change {
        AccountChange::Settle(settlement) => settlement.row.map(Arc::unwrap_or_clone),
        AccountChange::Open { .. } | AccountChange::Credit { .. } | AccountChange::Adjust { .. } => None,
    }
}

impl Journal {
    /// Creates a reader of the rows from a number onwards, as far as the journal still has them.
    pub(crate) fn rows(&self, from: u64) -> RowReader {
        let from = Position::from_number(from);
        RowReader(JournalRecordReader::new(
            Arc::clone(&self.engine),
            from,
            ReadScope::StepsOnDisk,
        ))
    }

    /// Returns a row number: the store has acknowledged all rows with lower numbers. Returns 0 while weir looks up steps that the
    /// store has forgotten.
    pub(crate) fn acknowledged_before(&self) -> u64 {
        let state = self.engine.lock();
        let accounts = &state.contents.accounts;
        if !accounts.missing_ranges().is_empty() {
            return 0;
        }
        let end = Position {
            segment: state.tail.current.number,
            offset: state.tail.current.at,
        };
        accounts.first_position().unwrap_or(end).number()
    }

    /// Returns a row number: every row with a lower number is either on disk or recorded as lost.
    pub(crate) fn decided_number(&self) -> u64 {
        self.engine.synced.borrow().decided_end().number()
    }

    /// Waits until every row up to `number` is either on disk or recorded as lost.
    pub(crate) async fn wait_until_decided(&self, number: u64) {
        let mut synced = self.engine.synced.subscribe();
        let _ = synced.wait_for(|synced| synced.decided_end().number() > number).await;
    }

    /// Ensures that every new row has a number of at least `number`. A sink may have rows that this journal has lost. If new rows
    /// had the numbers of lost rows, the sink would take the new rows for the lost ones. Returns whether the row numbers had to
    /// be raised.
    ///
    /// # Errors
    /// There is no room for a new segment. After this error, the row numbers are unchanged.
    pub(crate) fn raise_numbers(&self, number: u64) -> Result<bool, JournalError> {
        let least = Position::from_number(number);
        let mut state = self.engine.lock();
        let (segment, at) = (state.tail.current.number, state.tail.current.at);
        if (Position { segment, offset: at }) >= least {
            return Ok(false);
        }
        let leapt = state.tail.skip_to(least.segment + 1, &self.engine.folder)?;
        self.engine.register_segment(&mut state, clock::unix_millis());
        state.dirty = true;
        self.engine.work.notify_one();
        Ok(leapt)
    }
}

impl Journal {
    /// Returns the hours whose counters have grown since the last call, each with all its counters. Also returns the position of
    /// the last row that the counters include. The first call after a start returns every hour.
    ///
    /// Before publishing the hours, pass the position to [`Journal::wait_until_synced`]. After publishing them, pass it to
    /// [`Journal::mark_published`]. Publish the hours even if `wait_until_synced` returns
    /// [`crate::journal::JournalError::NotDurable`], because settlements are also sent after that error.
    pub(crate) fn take_changed_shares(&self) -> (Vec<NodeHourCounters>, Position) {
        let mut state = self.engine.lock();
        let tallies = &mut state.contents.hourly_counts;
        (tallies.take_changed(), tallies.last().unwrap_or(Position::START))
    }

    /// Returns the counters of all hours in memory: the hours of all segments, and at least the last 48 hours.
    pub(crate) fn shares(&self) -> Vec<NodeHourCounters> {
        self.engine.lock().contents.hourly_counts.shares()
    }

    /// Marks hours as not published, so that [`Journal::take_changed_shares`] returns them again.
    pub(crate) fn mark_unpublished(&self, hours: &[Hour]) {
        self.engine.lock().contents.hourly_counts.mark_changed(hours);
    }

    /// Marks all rows up to a position from [`Journal::take_changed_shares`] as published. These rows include all rows whose
    /// counters earlier calls of `take_changed_shares` returned. Segments with unpublished rows are retained, because a later
    /// start needs them to count the hours completely.
    pub(crate) fn mark_published(&self, position: Position) {
        let mut state = self.engine.lock();
        let told = &mut state.contents.published;
        *told = position.max(*told);
    }
}
