//! Brings rows of a journal to the log that lacks them.

use std::{
    collections::BTreeMap,
    sync::{Arc, Weak},
};

use smol_str::SmolStr;

use super::error::OwnJournalError;
use crate::{
    domain::ledger::{consumption::Row, daily_sums},
    journal::{Journal, JournalError, NumberedRow},
    sinks::{
        batching::Batching,
        fill,
        sink::{Batch, Sink, SinkError},
    },
    store::ledger::{LedgerStore, LogLists, PUT_ROWS_MAX},
};

/// What lacks rows.
#[derive(Clone, Copy)]
pub(super) enum Filled<'l> {
    /// A home that is fed.
    Home(&'l dyn Sink),
    /// The lists of a store, and how far its settlements are.
    Store(&'l dyn LogLists, &'l dyn LedgerStore),
}

/// How often the feeder may come first, one time behind the other.
const ATTEMPTS_MAX: usize = 5;

/// How many rows of which account and day.
pub(super) type Counts = BTreeMap<(SmolStr, i64), u64>;

impl Filled<'_> {
    /// Brings rows of a lane, and counts those that it has brought.
    pub(super) async fn bring(self, lane: &Weak<Journal>, rows: Vec<Row>) -> Result<Counts, OwnJournalError> {
        let mut brought = Counts::new();
        match self {
            Self::Home(home) => {
                for row in &rows {
                    *brought.entry(place(row)).or_default() += 1;
                }
                fill::append(home, rows).await?;
            }
            Self::Store(lists, ledger) => {
                let mut by_day: BTreeMap<(SmolStr, i64), Vec<Row>> = BTreeMap::new();
                for row in rows {
                    by_day.entry(place(&row)).or_default().push(row);
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

/// Hands rows of a lane over again, up to a number: the home has lost them, and with them how far it was. It has them in the
/// lane's own order and numbers, so that the lane's feeder goes on behind them. Counts those that it has brought.
pub(super) async fn hand_over_again(
    home: &dyn Sink,
    lane: &Weak<Journal>,
    upto: u64,
) -> Result<Counts, OwnJournalError> {
    let (mut brought, mut attempts) = (Counts::new(), ATTEMPTS_MAX);
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
                    *brought.entry(place(&numbered.row)).or_default() += 1;
                }
            }
            // The feeder has handed some over meanwhile.
            Err(SinkError::OutOfOrder { .. }) if attempts > 0 => attempts -= 1,
            Err(error) => return Err(error.into()),
        }
    }
}

/// The rows of a batch from a number on, and up to where it goes; `None`: there are no rows up to `upto`.
fn next_batch(
    journal: &Journal,
    batching: Batching,
    after: u64,
    upto: u64,
) -> Result<Option<(Vec<NumberedRow>, u64)>, JournalError> {
    if after >= upto {
        return Ok(None);
    }
    let (mut reader, mut rows) = (journal.rows(after), Vec::<NumberedRow>::new());
    let end = loop {
        if rows.len() == batching.rows_max {
            break reader.at();
        }
        let Some(next) = reader.read()?.filter(|next| next.number < upto) else {
            break upto;
        };
        let time_ms = next.row.time_ms;
        let first_ms = rows.first().map_or(time_ms, |first| first.row.time_ms);
        if !batching.takes(first_ms, time_ms) {
            break next.number;
        }
        rows.push(next);
    };
    Ok((!rows.is_empty()).then_some((rows, end)))
}

fn place(row: &Row) -> (SmolStr, i64) {
    (row.account.clone(), daily_sums::day_of(row))
}

/// Puts rows of a day back into the store, and says how many. Its sums count them, as it has applied their steps. None where it has
/// forgotten steps of the account as well: it is told these again, with their rows.
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
