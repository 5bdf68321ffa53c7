//! Brings rows to a home that it lacks although the store has them: those from before it was one, and those that a journal has
//! lost.

use std::collections::HashSet;

use thiserror::Error;

use crate::{
    domain::ledger::{NodeId, consumption::Row},
    journal::NumberedRow,
    sinks::{
        home::{Home, HomeError},
        sink::{Batch, SinkError},
    },
    store::{
        StoreError,
        ledger::{LOG_ROWS_MAX, LedgerStore},
    },
};

/// The most rows that are handed over at once.
const BATCH_ROWS: usize = 10_000;
/// How often a batch is numbered anew because another process has filled something meanwhile.
const ATTEMPTS_MAX: usize = 16;

/// Why a home was not filled, or not wholly. What was brought stays; doing it again goes on from there.
#[derive(Debug, Error)]
pub(crate) enum FillError {
    #[error(transparent)]
    Home(#[from] HomeError),
    #[error(transparent)]
    Sink(#[from] SinkError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Brings the rows of an account and day that ended before `before_ms` to the home, if it lacks them; says how many. The home
/// has whatever journals will ever bring of that time. The ids of the day's rows are in memory meanwhile.
pub(crate) async fn fill(
    home: &dyn Home,
    ledger: &dyn LedgerStore,
    (account, day): (&str, i64),
    before_ms: i64,
) -> Result<u64, FillError> {
    let mut known = HashSet::new();
    let mut skip = 0;
    loop {
        let page = home.rows(account, day, skip, LOG_ROWS_MAX).await?;
        skip += page.len();
        let is_last = page.len() < LOG_ROWS_MAX;
        known.extend(page.into_iter().map(|row| row.request_id));
        if is_last {
            break;
        }
    }
    let (mut lacking, mut brought, mut skip) = (Vec::new(), 0, 0);
    loop {
        let page = ledger.rows(account, day, skip, LOG_ROWS_MAX).await?;
        skip += page.len();
        let is_last = page.len() < LOG_ROWS_MAX;
        let rows = page.into_iter().filter(|row| row.time_ms < before_ms);
        lacking.extend(rows.filter(|row| !known.contains(&row.request_id)));
        if !lacking.is_empty() && (is_last || lacking.len() >= BATCH_ROWS) {
            brought += append(home, std::mem::take(&mut lacking)).await?;
        }
        if is_last {
            return Ok(brought);
        }
    }
}

/// Hands rows over in the lane that is for them; says how many they were.
async fn append(home: &dyn Home, rows: Vec<Row>) -> Result<u64, SinkError> {
    let node = NodeId::none();
    let mut after = home.watermark(&node).await?;
    let mut attempts = ATTEMPTS_MAX;
    loop {
        let numbers = after + 1..;
        let rows: Vec<NumberedRow> = std::iter::zip(numbers, &rows)
            .map(|(number, row)| NumberedRow {
                number,
                row: row.clone(),
            })
            .collect();
        let count = rows.len() as u64;
        let batch = Batch {
            node: node.clone(),
            after,
            upto: after + 1 + count,
            rows,
        };
        attempts -= 1;
        match home.append(&batch).await {
            Ok(()) => return Ok(count),
            Err(SinkError::OutOfOrder { watermark }) if attempts > 0 => after = watermark,
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests;
