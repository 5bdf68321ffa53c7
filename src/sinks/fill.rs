//! Brings rows to a home that it lacks although the home before it has them: those from before it was one.

use std::sync::Arc;

use thiserror::Error;

use crate::{
    domain::ledger::{NodeId, consumption::Row},
    journal::NumberedRow,
    sinks::{
        asks::{HomeError, PAGE_ROWS_MAX},
        day_rows::{DayRows, Missing, ROWS_AT_ONCE},
        home::{FedHome, LogHome},
        sink::{Batch, Sink, SinkError},
    },
};

/// The most rows that are handed over at once.
pub(super) const BATCH_ROWS: usize = 10_000;
/// How often a batch is numbered anew because another process has filled something meanwhile.
const ATTEMPTS_MAX: usize = 16;

/// Why a home was not filled, or not wholly. What was brought stays; doing it again goes on from there.
#[derive(Debug, Error)]
pub(crate) enum FillError {
    #[error(transparent)]
    Home(#[from] HomeError),
    #[error(transparent)]
    Sink(#[from] SinkError),
}

/// Brings the rows of an account and day that ended before `before_ms` from the home before, if the home lacks them; says how many. The
/// home has whatever journals will ever bring of that time. Hashes of [`ROWS_AT_ONCE`] ids at most are in memory meanwhile.
pub(crate) async fn fill(
    home: &dyn FedHome,
    former: &dyn LogHome,
    place: (&str, i64),
    before_ms: i64,
) -> Result<u64, FillError> {
    let (mut brought, mut rows) = (0, DayRows::new(former, place));
    while !rows.has_ended() {
        let begin = rows.clone();
        let mut missing = Missing::find(home, &mut rows, ROWS_AT_ONCE).await?;
        brought += bring(home, begin, &mut missing, before_ms).await?;
    }
    Ok(brought)
}

/// Brings those of the rows from a place on that are missing.
async fn bring(
    home: &dyn FedHome,
    mut rows: DayRows<'_>,
    missing: &mut Missing,
    before_ms: i64,
) -> Result<u64, FillError> {
    let (mut lacking, mut brought) = (Vec::new(), 0);
    while !missing.is_empty() && !rows.has_ended() {
        let page = rows.next(PAGE_ROWS_MAX).await?;
        let of_page = page.rows.into_iter().filter(|row| missing.remove(row));
        lacking.extend(of_page.filter(|row| row.time_ms < before_ms));
        if lacking.len() >= BATCH_ROWS {
            brought += append(home, std::mem::take(&mut lacking)).await?;
        }
    }
    if !lacking.is_empty() {
        brought += append(home, lacking).await?;
    }
    Ok(brought)
}

/// Hands rows over in the lane that is for them; says how many they were.
pub(super) async fn append(home: &dyn Sink, rows: Vec<Row>) -> Result<u64, SinkError> {
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
