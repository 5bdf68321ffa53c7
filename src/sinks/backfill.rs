//! Copies rows that are only in the former log backend to the current one.

#[cfg(test)]
mod tests;

use std::{
    collections::HashSet,
    hash::{BuildHasher, RandomState},
    sync::Arc,
};

use thiserror::Error;

use crate::{
    domain::ledger::{NodeId, consumption::Row},
    journal::NumberedRow,
    sinks::{Batch, FedLogBackend, LogBackend, LogBackendError, LogPageQuery, PAGE_ROWS_MAX, RowPage, Sink, SinkError},
    store::{
        StoreError,
        ledger::{LOG_ROWS_MAX, LogLists},
    },
};

/// The maximum number of rows in one batch of copied rows.
pub(super) const BATCH_ROWS: usize = 10_000;
/// The maximum number of attempts to append a batch. All processes append copied rows to the same lane. An attempt fails if
/// another process has appended rows to it meanwhile; the batch then gets new numbers.
const ATTEMPTS_MAX: usize = 16;

/// The reason why not all rows were copied. Rows that were copied stay in the current log backend, and another call of
/// [`fill`] copies the others.
#[derive(Debug, Error)]
pub(crate) enum FillError {
    #[error(transparent)]
    Home(#[from] LogBackendError),
    #[error(transparent)]
    Sink(#[from] SinkError),
}

/// Copies rows of an account and day from the former log backend to `home`. A row is copied if its request ended before
/// `before_ms` and `home` lacks the row. Returns the number of copied rows. The caller ensures that `home` has already received
/// all rows of the journals, except rows whose requests ended at `before_ms` or later. Otherwise `home` would later receive
/// copied rows a second time from the journals. At most [`ROWS_AT_ONCE`] hashes of request ids are in memory.
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

/// Copies a row of `rows` if its request ended before `before_ms` and the row is in `missing`. Returns the number of copied rows.
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

/// Appends rows to a log backend, in the lane that is reserved for copied rows. Returns the number of appended rows.
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

/// The maximum number of rows whose request ids are compared at once. The hashes of the ids take about 16 MB of memory.
pub(super) const ROWS_AT_ONCE: usize = 1_000_000;

/// Reads an account's rows of one day from a log backend, duplicates included.
#[derive(Clone)]
pub(super) struct DayRows<'h> {
    home: &'h dyn LogBackend,
    place: (&'h str, i64),
    ask: LogPageQuery,
    ends: bool,
}

impl<'h> DayRows<'h> {
    /// Creates a reader that begins at the first row of an account and day.
    pub(super) fn new(home: &'h dyn LogBackend, (account, day): (&'h str, i64)) -> Self {
        Self {
            home,
            place: (account, day),
            ask: LogPageQuery::for_day(account, day, PAGE_ROWS_MAX),
            ends: false,
        }
    }

    /// Reads the next page. It has at most `limit` rows, or a few more if several rows have the position of the last one.
    pub(super) async fn next(&mut self, limit: usize) -> Result<RowPage, LogBackendError> {
        if self.ends {
            return Ok(RowPage::default());
        }
        self.ask.limit = limit.min(PAGE_ROWS_MAX);
        let mut page = self.home.page(&self.ask).await?;
        match page.next.take() {
            Some(next) => self.ask.after = next,
            None => self.ends = true,
        }
        Ok(page)
    }

    /// Returns whether the last row of the day has been read.
    pub(super) fn has_ended(&self) -> bool {
        self.ends
    }
}

/// Calls `visit` with each row of an account and day in a log backend.
pub(super) async fn for_each_row(
    home: &dyn LogBackend,
    place: (&str, i64),
    mut visit: impl FnMut(&Row) + Send,
) -> Result<(), LogBackendError> {
    let mut rows = DayRows::new(home, place);
    while !rows.has_ended() {
        rows.next(PAGE_ROWS_MAX).await?.rows.iter().for_each(&mut visit);
    }
    Ok(())
}

/// Calls `visit` with each row in the store's list for one account and one day, except the first `skip` rows. Returns the number
/// of rows
/// in the list, including the skipped ones.
pub(super) async fn for_each_listed_row(
    lists: &dyn LogLists,
    (account, day): (&str, i64),
    skip: usize,
    mut visit: impl FnMut(&Row) + Send,
) -> Result<usize, StoreError> {
    let mut read = skip;
    loop {
        let rows = lists.rows(account, day, read, LOG_ROWS_MAX).await?;
        rows.iter().for_each(&mut visit);
        read += rows.len();
        if rows.len() < LOG_ROWS_MAX {
            return Ok(read);
        }
    }
}

/// The rows that one log backend has and another one lacks, as hashes of their request ids.
pub(super) struct MissingRows {
    hashes: RandomState,
    ids: HashSet<u64>,
}

impl MissingRows {
    /// Reads at least the next `wanted` rows from `rows`, and returns those of them that `home` lacks.
    pub(super) async fn find(
        home: &dyn LogBackend,
        rows: &mut DayRows<'_>,
        wanted: usize,
    ) -> Result<Self, LogBackendError> {
        let mut missing = Self {
            hashes: RandomState::new(),
            ids: HashSet::new(),
        };
        let mut looked_for = 0;
        while looked_for < wanted && !rows.has_ended() {
            let page = rows.next(wanted - looked_for).await?;
            looked_for += page.rows.len();
            let ids = page.rows.iter().map(|row| missing.hashes.hash_one(&row.request_id));
            missing.ids.extend(ids);
        }
        if !missing.is_empty() {
            for_each_row(home, rows.place, |row| {
                missing.remove(row);
            })
            .await?;
        }
        Ok(missing)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// Removes a row from the missing rows. Returns whether it was one of them.
    pub(super) fn remove(&mut self, row: &Row) -> bool {
        self.ids.remove(&self.hashes.hash_one(&row.request_id))
    }
}
