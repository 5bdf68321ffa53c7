//! Copies rows from the former log backend to the current one: those from before the change.

use std::sync::Arc;

use thiserror::Error;

use crate::{
    domain::ledger::{NodeId, consumption::Row},
    journal::NumberedRow,
    sinks::{
        asks::{LogBackendError, PAGE_ROWS_MAX},
        day_rows::{DayRows, MissingRows, ROWS_AT_ONCE},
        home::{FedLogBackend, LogBackend},
        sink::{Batch, Sink, SinkError},
    },
};

/// The maximum number of rows in a batch.
pub(super) const BATCH_ROWS: usize = 10_000;
/// How often a batch is renumbered because another process has added rows meanwhile.
const ATTEMPTS_MAX: usize = 16;

/// Why not all rows were copied. Copied rows stay; calling [`fill`] again continues with the others.
#[derive(Debug, Error)]
pub(crate) enum FillError {
    #[error(transparent)]
    Home(#[from] LogBackendError),
    #[error(transparent)]
    Sink(#[from] SinkError),
}

/// Copies the rows of an account and day that ended before `before_ms` from the former log backend, if `home` lacks them; returns
/// their number. No journal may have rows of that time that `home` still lacks. At most [`ROWS_AT_ONCE`] hashes of ids are in
/// memory.
pub(crate) async fn fill(
    home: &dyn FedLogBackend,
    former: &dyn LogBackend,
    place: (&str, i64),
    before_ms: i64,
) -> Result<u64, FillError> {
    let (mut brought, mut rows) = (0, DayRows::new(former, place));
    while !rows.has_ended() {
        let begin = rows.clone();
        let mut missing = MissingRows::find(home, &mut rows, ROWS_AT_ONCE).await?;
        brought += copy_missing(home, begin, &mut missing, before_ms).await?;
    }
    Ok(brought)
}

/// Copies the missing ones of `rows`; returns their number.
async fn copy_missing(
    home: &dyn FedLogBackend,
    mut rows: DayRows<'_>,
    missing: &mut MissingRows,
    before_ms: i64,
) -> Result<u64, FillError> {
    let (mut lacking, mut brought) = (Vec::new(), 0);
    while !missing.is_empty() && !rows.has_ended() {
        let page = rows.next(PAGE_ROWS_MAX).await?;
        let of_page = page.rows.into_iter().filter(|row| missing.remove(row));
        lacking.extend(of_page.filter(|row| row.time_ms < before_ms));
        if lacking.len() >= BATCH_ROWS {
            brought += append_copied(home, std::mem::take(&mut lacking)).await?;
        }
    }
    if !lacking.is_empty() {
        brought += append_copied(home, lacking).await?;
    }
    Ok(brought)
}

/// Appends rows in the lane for copied rows; returns their number.
pub(super) async fn append_copied(home: &dyn Sink, rows: Vec<Row>) -> Result<u64, SinkError> {
    let node = NodeId::none();
    let mut after = home.watermark(&node).await?;
    let mut attempts = ATTEMPTS_MAX;
    loop {
        let numbers = after + 1..;
        let numbered = std::iter::zip(numbers, &rows).map(|(number, row)| NumberedRow {
            number,
            row: row.clone(),
        });
        let rows: Vec<Arc<NumberedRow>> = numbered.map(Arc::new).collect();
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
