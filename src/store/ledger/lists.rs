//! The rows of a store in which the log is kept: lists by account and day.

use std::ops::RangeInclusive;

use async_trait::async_trait;

use crate::{
    domain::ledger::{LogDay, consumption::Row},
    store::StoreError,
};

/// The maximum number of rows on one page of the log.
pub(crate) const LOG_ROWS_MAX: usize = 1000;
/// The maximum number of rows that one call restores.
pub(crate) const PUT_ROWS_MAX: usize = 200;

/// The lists of rows, by account and day, to which settlements append if the log is kept in the store.
#[async_trait]
pub(crate) trait LogLists: Send + Sync {
    /// Up to `limit` (at most [`LOG_ROWS_MAX`]) rows of an account that ended on a day (days since the Unix epoch, UTC), in
    /// the order in which they were applied, after the first `skip`. Rows older than
    /// [`crate::domain::ledger::consumption::RETENTION_DAYS`] are gone.
    async fn rows(&self, account: &str, day: i64, skip: usize, limit: usize) -> Result<Vec<Row>, StoreError>;

    /// The days of an account that have rows, earliest first.
    async fn log_days(&self, account: &str, days: RangeInclusive<i64>) -> Result<Vec<LogDay>, StoreError>;

    /// Appends rows to a day: rows that the store has lost although it has applied their steps. Charges and sums do not
    /// change. At most [`PUT_ROWS_MAX`]. `false` if the account does not exist; then nothing has changed.
    async fn put_rows(&self, account: &str, day: i64, rows: &[Row]) -> Result<bool, StoreError>;

    /// Removes the rows of a day in one atomic step, if there are exactly as many as were `seen`, and returns whether there
    /// were. Their sums stay. The rows are gone for good: call this only for rows that the log backend is known to have.
    async fn remove(&self, account: &str, seen: &LogDay) -> Result<bool, StoreError>;
}
