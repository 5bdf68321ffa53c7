//! A sink that the log is read from.

use async_trait::async_trait;
use thiserror::Error;

use crate::{domain::ledger::consumption::Row, sinks::sink::Sink};

/// A home cannot be read. Says why, and what to do.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("the log's home cannot be read: {0}")]
pub(crate) struct HomeError(pub String);

/// Where the log is at home: a sink that can be asked for its rows.
#[async_trait]
pub(crate) trait Home: Sink {
    /// Up to `limit` rows of an account that ended on a day (days since the Unix epoch, UTC), over all lanes, in an order that
    /// stays while no rows of that day come, the first `skip` left out.
    async fn rows(&self, account: &str, day: i64, skip: usize, limit: usize) -> Result<Vec<Row>, HomeError>;
}
