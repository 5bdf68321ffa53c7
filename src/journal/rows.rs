//! Reads the rows of the consumption log from the journal, in its order, each with a number.
//!
//! A row's number is the position of its record. Numbers of a lane ascend and none is used twice, even after a crash; they
//! are not consecutive. Damage loses the rows whose bytes it has changed; the numbers of the others stay.

use std::sync::Arc;

use crate::{
    domain::ledger::{AccountChange, Record, consumption::Row},
    edges::clock,
    journal::{
        error::JournalError,
        handle::Journal,
        position::Position,
        reader::{JournalRecordReader, ReadScope},
    },
};

/// A row with its number in the journal's lane.
#[derive(Clone, Debug, PartialEq)]
pub struct NumberedRow {
    /// Greater than the number of every earlier row.
    pub number: u64,
    /// The row, as the store logs it.
    pub row: Row,
}

/// Reads rows in the order of their numbers. Blocks on the disk, rarely for long.
pub(crate) struct RowReader(JournalRecordReader);

impl RowReader {
    /// Reads the next row; `None` if none is on disk yet. The store may not have the row yet.
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

    /// The number before which all rows have been read.
    pub(crate) fn next_number(&self) -> u64 {
        self.0.position().number()
    }
}

/// The row of a record; `None` if it has none.
pub(super) fn row_of(record: Record) -> Option<Row> {
    let Record::Step { step, .. } = record else { return None };
    match step.change {
        AccountChange::Settle(settlement) => settlement.row.map(Arc::unwrap_or_clone),
        AccountChange::Open { .. } | AccountChange::Credit { .. } | AccountChange::Adjust { .. } => None,
    }
}

impl Journal {
    /// Reads the rows from a number onwards, as far as they are kept.
    pub(crate) fn rows(&self, from: u64) -> RowReader {
        let from = Position::from_number(from);
        RowReader(JournalRecordReader::new(
            Arc::clone(&self.engine),
            from,
            ReadScope::StepsOnDisk,
        ))
    }

    /// The number before which the store has acknowledged all rows; 0 while steps that it has forgotten are looked up.
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

    /// The number before which every row is either on disk or counted as lost.
    pub(crate) fn decided_number(&self) -> u64 {
        self.engine.synced.borrow().decided_end().number()
    }

    /// Waits until the journal is synced beyond `number`.
    pub(crate) async fn wait_until_decided(&self, number: u64) {
        let mut synced = self.engine.synced.subscribe();
        let _ = synced.wait_for(|synced| synced.decided_end().number() > number).await;
    }

    /// Ensures that every new row gets at least this number: a sink that remembers rows which this journal has lost would mistake
    /// new ones for them. Returns whether lower numbers would have been used.
    ///
    /// # Errors
    /// There is no room for a new segment. Nothing has changed then.
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
