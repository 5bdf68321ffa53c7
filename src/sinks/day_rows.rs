//! Reads the rows of an account and day page by page, from a log backend or a store's list.

use std::{
    collections::HashSet,
    hash::{BuildHasher, RandomState},
};

use crate::{
    domain::ledger::consumption::Row,
    sinks::{
        asks::{LogBackendError, LogPageQuery, PAGE_ROWS_MAX, RowPage},
        home::LogBackend,
    },
    store::{
        StoreError,
        ledger::{LOG_ROWS_MAX, LogLists},
    },
};

/// The maximum number of rows whose requests are in memory at once: their hashes take some 16 MB.
pub(super) const ROWS_AT_ONCE: usize = 1_000_000;

/// Reads a log backend's rows of a day, duplicates included.
#[derive(Clone)]
pub(super) struct DayRows<'h> {
    home: &'h dyn LogBackend,
    place: (&'h str, i64),
    ask: LogPageQuery,
    ends: bool,
}

impl<'h> DayRows<'h> {
    /// Begins at the first row of an account and day.
    pub(super) fn new(home: &'h dyn LogBackend, (account, day): (&'h str, i64)) -> Self {
        Self {
            home,
            place: (account, day),
            ask: LogPageQuery::for_day(account, day, PAGE_ROWS_MAX),
            ends: false,
        }
    }

    /// Reads the next rows: at least `limit`, unless they are the last.
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

    /// Whether the last rows have been read.
    pub(super) fn has_ended(&self) -> bool {
        self.ends
    }
}

/// Visits each row of an account and day in a log backend.
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

/// Visits each row of a store's list of an account and day after the first `skip`; returns the number of rows, including these.
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

/// Rows missing from a log backend, among the rows compared.
pub(super) struct MissingRows {
    hashes: RandomState,
    ids: HashSet<u64>,
}

impl MissingRows {
    /// Compares a log backend with the next rows of another one, `wanted` of them or a few more.
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

    /// Removes a row from the missing ones; returns whether it was missing.
    pub(super) fn remove(&mut self, row: &Row) -> bool {
        self.ids.remove(&self.hashes.hash_one(&row.request_id))
    }
}
