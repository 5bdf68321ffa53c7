//! The rows of a store that is the home of the log: lists by account and day.

use std::ops::RangeInclusive;

use async_trait::async_trait;

use crate::{
    domain::ledger::{LogDay, consumption::Row},
    store::StoreError,
};

/// The most rows one page of the log has.
pub(crate) const LOG_ROWS_MAX: usize = 1000;
/// The most rows that one call puts back.
pub(crate) const PUT_ROWS_MAX: usize = 200;

/// The lists of rows that settlements push where the store is the log's home.
#[async_trait]
pub(crate) trait LogLists: Send + Sync {
    /// Up to `limit` (at most [`LOG_ROWS_MAX`]) rows of an account that ended on a day (days since the Unix epoch, UTC), in the
    /// order they were applied in, without the first `skip`. Rows older than
    /// [`crate::domain::ledger::consumption::RETENTION_DAYS`] are gone.
    async fn rows(&self, account: &str, day: i64, skip: usize, limit: usize) -> Result<Vec<Row>, StoreError>;

    /// The days of an account that have rows, the earliest first.
    async fn log_days(&self, account: &str, days: RangeInclusive<i64>) -> Result<Vec<LogDay>, StoreError>;

    /// Puts rows of a day behind those that are there: rows that the store has lost although it has applied the steps that they
    /// came with. Charges and sums stay as they are. At most [`PUT_ROWS_MAX`]. `false`: the account is not there, and nothing has
    /// changed.
    async fn put_rows(&self, account: &str, day: i64, rows: &[Row]) -> Result<bool, StoreError>;

    /// Removes the rows of a day, in one atomic step, if there are as many as were `seen`. Answers whether there were. Their
    /// sums stay. They are gone for good: only for rows that the home after this one is known to have.
    async fn remove(&self, account: &str, seen: &LogDay) -> Result<bool, StoreError>;
}
