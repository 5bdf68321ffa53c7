//! A sink that the log is read from.

use std::ops::RangeInclusive;

use async_trait::async_trait;
use thiserror::Error;

use crate::{
    domain::{
        keys::key::KeyId,
        ledger::{NodeId, consumption::Row, log_filter::LogFilter, log_place::LogPlace},
    },
    journal::NumberedRow,
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
    /// Up to `limit` rows of an account that ended on a day (days since the Unix epoch, UTC), each with its lane, in an order that
    /// stays while no rows of that day come, the first `skip` left out.
    async fn numbered(
        &self,
        account: &str,
        day: i64,
        skip: usize,
        limit: usize,
    ) -> Result<Vec<(NodeId, NumberedRow)>, HomeError>;

    /// The same without lanes and numbers.
    async fn rows(&self, account: &str, day: i64, skip: usize, limit: usize) -> Result<Vec<Row>, HomeError> {
        let numbered = self.numbered(account, day, skip, limit).await?;
        Ok(numbered.into_iter().map(|(_, numbered)| numbered.row).collect())
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
