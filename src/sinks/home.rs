//! A sink that the log is read from.

use std::ops::RangeInclusive;

use async_trait::async_trait;
use thiserror::Error;

use crate::{
    domain::{
        keys::key::KeyId,
        ledger::{consumption::Row, log_filter::LogFilter, log_place::LogPlace},
    },
    sinks::sink::Sink,
};

/// The most rows of one page: what is in memory of it.
pub const PAGE_ROWS_MAX: usize = 4096;

/// A home cannot be read. Says why, and what to do.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("the log's home cannot be read: {0}")]
pub struct HomeError(pub String);

/// Where the log is at home: a sink that can be asked for its rows.
#[async_trait]
pub trait Home: Sink {
    /// Up to `limit` rows of an account that ended on a day (days since the Unix epoch, UTC), over all lanes, in an order that
    /// stays while no rows of that day come, the first `skip` left out.
    async fn rows(&self, account: &str, day: i64, skip: usize, limit: usize) -> Result<Vec<Row>, HomeError>;

    /// The rows that [`Home::rows`] has there, of each only what tells which it is and what is counted: account, key, model, time,
    /// request id, tags, status, usage and cost. Other fields may be empty.
    async fn counted(&self, account: &str, day: i64, skip: usize, limit: usize) -> Result<Vec<Row>, HomeError> {
        self.rows(account, day, skip, limit).await
    }

    /// The first rows of a day (days since the Unix epoch, UTC) that the filter takes and that are behind a place, over all
    /// lanes, in the order of [`LogPlace`]: `limit` of them, or fewer if there are no more. `limit` is at most
    /// [`PAGE_ROWS_MAX`]. A row that is there twice comes twice.
    async fn page(&self, filter: &LogFilter, day: i64, after: &LogPlace, limit: usize) -> Result<Vec<Row>, HomeError>;

    /// The last rows of a key that ended on one of these days, the latest first, at most `limit` and [`PAGE_ROWS_MAX`].
    async fn latest(
        &self,
        account: &str,
        key: &KeyId,
        days: RangeInclusive<i64>,
        limit: usize,
    ) -> Result<Vec<Row>, HomeError>;
}
