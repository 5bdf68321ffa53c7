//! The rows of the consumption log as the journal has them: in its order, each with a number.
//!
//! A row's number is the place of its record. Numbers of a lane ascend, and none is given twice, whatever becomes of the
//! process; they are not consecutive. Damage takes the rows whose bytes it has changed; the numbers of the others stay.

use std::sync::Arc;

use crate::{
    domain::ledger::{Change, Record, consumption::Row},
    edges::clock,
    journal::{
        error::JournalError,
        handle::Journal,
        position::Position,
        reader::{Reader, Scope},
    },
};

/// A row and its number in the lane of the journal that has it.
#[derive(Clone, Debug, PartialEq)]
pub struct NumberedRow {
    /// More than that of every row before it.
    pub number: u64,
    /// The row, as the store logs it.
    pub row: Row,
}

/// Reads rows in the order of their numbers. Blocks on the disk, seldom for long.
pub(crate) struct Rows(Reader);

impl Rows {
    /// The next row; `None`: no further one is on disk yet. The store may not have it yet either.
    ///
    /// # Errors
    /// A segment cannot be read. Reading again tries again.
    pub(crate) fn read(&mut self) -> Result<Option<NumberedRow>, JournalError> {
        while let Some((position, record)) = self.0.read()? {
            if let Some(row) = row_of(record) {
                let number = position.number();
                return Ok(Some(NumberedRow { number, row }));
            }
        }
        Ok(None)
    }

    /// All rows with lower numbers have been read, and no others.
    pub(crate) fn at(&self) -> u64 {
        self.0.position().number()
    }
}

/// The row of a record that has one.
pub(super) fn row_of(record: Record) -> Option<Row> {
    let Record::Step { step, .. } = record else { return None };
    match step.change {
        Change::Settle(settlement) => settlement.row.map(Arc::unwrap_or_clone),
        Change::Open { .. } | Change::Credit { .. } | Change::Adjust { .. } => None,
    }
}

impl Journal {
    /// The rows from a number on, as far as they are kept.
    pub(crate) fn rows(&self, from: u64) -> Rows {
        let from = Position::of_number(from);
        Rows(Reader::new(Arc::clone(&self.engine), from, Scope::StepsOnDisk))
    }

    /// The store has acknowledged all rows with lower numbers. 0, while steps are looked up that it has forgotten.
    pub(crate) fn acknowledged_before(&self) -> u64 {
        let state = self.engine.lock();
        let accounts = &state.contents.accounts;
        if !accounts.rewound().is_empty() {
            return 0;
        }
        let end = Position {
            segment: state.tail.current.number,
            offset: state.tail.current.at,
        };
        accounts.first_position().unwrap_or(end).number()
    }

    /// Up to which number it is decided what is on disk.
    pub(crate) fn on_disk(&self) -> u64 {
        self.engine.synced.borrow().to().number()
    }

    /// Waits until it is decided of something with a number of at least `number` whether it is on disk.
    pub(crate) async fn on_disk_beyond(&self, number: u64) {
        let mut synced = self.engine.synced.subscribe();
        let _ = synced.wait_for(|synced| synced.to().number() > number).await;
    }

    /// Gives no row a number below this one from now on: whoever remembers rows that this journal has lost would take new
    /// ones for those. Says whether it would have.
    ///
    /// # Errors
    /// There is no room for a new segment. Nothing has changed then.
    pub(crate) fn number_beyond(&self, number: u64) -> Result<bool, JournalError> {
        let least = Position::of_number(number);
        let mut state = self.engine.lock();
        let (segment, at) = (state.tail.current.number, state.tail.current.at);
        if (Position { segment, offset: at }) >= least {
            return Ok(false);
        }
        let leapt = state.tail.leap(least.segment + 1, &self.engine.folder)?;
        self.engine.note_begun(&mut state, clock::unix_millis());
        state.dirty = true;
        self.engine.work.notify_one();
        Ok(leapt)
    }
}
