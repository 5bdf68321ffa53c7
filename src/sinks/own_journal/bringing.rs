//! Restores rows of a journal to a log backend that has lost them.

use std::{
    collections::BTreeMap,
    sync::{Arc, Weak},
};

use smol_str::SmolStr;

use crate::sinks::own_journal::OwnJournalError;
use crate::{
    domain::ledger::{consumption::Row, daily_sums},
    journal::{Journal, JournalError, NumberedRow},
    sinks::{Batch, BatchLimits, Sink, SinkError, backfill},
    store::ledger::{LedgerStore, LogLists, PUT_ROWS_MAX},
};

/// The target to which missing rows are restored.
#[derive(Clone, Copy)]
pub(super) enum FillTarget<'l> {
    /// A sink, which is the log backend.
    Home(&'l dyn Sink),
    /// The lists of rows in a store, with the ledger that has the watermarks of settlement.
    Store(&'l dyn LogLists, &'l dyn LedgerStore),
}

/// The maximum number of consecutive batches that may fail because the lane's feeder appended rows first.
const ATTEMPTS_MAX: usize = 5;

/// The count of rows for each account and day.
pub(super) type RowsByDay = BTreeMap<(SmolStr, i64), u64>;

impl FillTarget<'_> {
    /// Restores rows of a lane. Returns the number of restored rows.
    pub(super) async fn restore(self, lane: &Weak<Journal>, rows: Vec<Row>) -> Result<RowsByDay, OwnJournalError> {
        let mut brought = RowsByDay::new();
        match self {
            Self::Home(home) => {
                for row in &rows {
                    *brought.entry(account_day(row)).or_default() += 1;
                }
                backfill::append_copied(home, rows).await?;
            }
            Self::Store(lists, ledger) => {
                let mut by_day: BTreeMap<(SmolStr, i64), Vec<Row>> = BTreeMap::new();
                for row in rows {
                    by_day.entry(account_day(&row)).or_default().push(row);
                }
                for (place, rows) in by_day {
                    let count = put_back((lists, ledger), lane, &place, &rows).await?;
                    brought.insert(place, count);
                }
            }
        }
        Ok(brought)
    }
}

/// Sends rows of a lane to the log backend again. The log backend has lost these rows together with its watermark of the lane.
/// Begins at the log backend's current watermark of the lane and stops before the number `upto`. The rows keep their order and
/// numbers, so the lane's feeder can continue after them. Returns the number of sent rows.
pub(super) async fn resend(home: &dyn Sink, lane: &Weak<Journal>, upto: u64) -> Result<RowsByDay, OwnJournalError> {
    let (mut brought, mut attempts) = (RowsByDay::new(), ATTEMPTS_MAX);
    loop {
        let journal = lane.upgrade().ok_or(OwnJournalError::Closed)?;
        let node = journal.node().clone();
        let (after, batching) = (home.watermark(&node).await?, home.batching());
        let read = tokio::task::spawn_blocking(move || next_batch(&journal, batching, after, upto));
        let Some((rows, upto)) = read.await.map_err(|_| OwnJournalError::Closed)?? else {
            return Ok(brought);
        };
        let batch = Batch {
            node,
            after,
            upto,
            rows: rows.into_iter().map(Arc::new).collect(),
        };
        match home.append(&batch).await {
            Ok(()) => {
                attempts = ATTEMPTS_MAX;
                for numbered in &batch.rows {
                    *brought.entry(account_day(&numbered.row)).or_default() += 1;
                }
            }
            // The lane's feeder has appended rows since the watermark was read.
            Err(SinkError::OutOfOrder { .. }) if attempts > 0 => attempts -= 1,
            Err(error) => return Err(error.into()),
        }
    }
}

/// Reads the rows of the batch that begins at the number `after`. Returns the rows, and the number at which the batch ends. All
/// rows of the batch have numbers below this number. The batch contains no row with the number `upto` or a higher number. Returns
/// `None` if the batch would be empty.
fn next_batch(
    journal: &Journal,
    batching: BatchLimits,
    after: u64,
    upto: u64,
) -> Result<Option<(Vec<NumberedRow>, u64)>, JournalError> {
    if after >= upto {
        return Ok(None);
    }
    let (mut reader, mut rows) = (journal.rows(after), Vec::<NumberedRow>::new());
    let end = loop {
        if rows.len() == batching.rows_max {
            break reader.next_number();
        }
        let Some(next) = reader.read()?.filter(|next| next.number < upto) else {
            break upto;
        };
        let time_ms = next.row.time_ms;
        let first_ms = rows.first().map_or(time_ms, |first| first.row.time_ms);
        if !batching.fits(first_ms, time_ms) {
            break next.number;
        }
        rows.push(next);
    };
    Ok((!rows.is_empty()).then_some((rows, end)))
}

fn account_day(row: &Row) -> (SmolStr, i64) {
    (row.account.clone(), daily_sums::day_of(row))
}

/// Puts rows of a day back into the store's lists. Does not change the store's sums: the store has already applied the settlement
/// of these rows, so the sums include them. If the store has lost steps of the account, puts no rows back, because settlement
/// sends these steps again with their rows. Returns the number of rows that were put back.
async fn put_back(
    (lists, ledger): (&dyn LogLists, &dyn LedgerStore),
    lane: &Weak<Journal>,
    (account, day): &(SmolStr, i64),
    rows: &[Row],
) -> Result<u64, OwnJournalError> {
    let (node, acknowledged) = {
        let journal = lane.upgrade().ok_or(OwnJournalError::Closed)?;
        (journal.node().clone(), journal.acknowledged_step(account))
    };
    if ledger.watermark(&node, account).await? < acknowledged {
        return Ok(0);
    }
    let mut brought = 0;
    for some in rows.chunks(PUT_ROWS_MAX) {
        if !lists.put_rows(account, *day, some).await? {
            return Ok(brought);
        }
        brought += some.len() as u64;
    }
    Ok(brought)
}
