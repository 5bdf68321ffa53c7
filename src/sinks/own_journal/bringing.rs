//! Brings rows of a journal to the log that lacks them.

use std::{collections::BTreeMap, sync::Weak};

use smol_str::SmolStr;

use super::error::OwnJournalError;
use crate::{
    domain::ledger::{consumption::Row, daily_sums},
    journal::Journal,
    sinks::{fill, sink::Sink},
    store::ledger::{LedgerStore, PUT_ROWS_MAX},
};

/// What lacks rows.
#[derive(Clone, Copy)]
pub(super) enum Filled<'l> {
    Home(&'l dyn Sink),
    Store(&'l dyn LedgerStore),
}

/// How many rows of which account and day.
type Counts = BTreeMap<(SmolStr, i64), u64>;

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
            Self::Store(ledger) => {
                let mut by_day: BTreeMap<(SmolStr, i64), Vec<Row>> = BTreeMap::new();
                for row in rows {
                    by_day.entry(place(&row)).or_default().push(row);
                }
                for (place, rows) in by_day {
                    let count = put_back(ledger, lane, &place, &rows).await?;
                    brought.insert(place, count);
                }
            }
        }
        Ok(brought)
    }
}

fn place(row: &Row) -> (SmolStr, i64) {
    (row.account.clone(), daily_sums::day_of(row))
}

/// Puts rows of a day back into the store, and says how many. None where the store has forgotten steps of the account as well: it
/// is told these again, with their rows.
async fn put_back(
    ledger: &dyn LedgerStore,
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
        if !ledger.put_rows(account, *day, some).await? {
            return Ok(brought);
        }
        brought += some.len() as u64;
    }
    ledger.resum(account, *day).await?;
    Ok(brought)
}
