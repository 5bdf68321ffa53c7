//! Queries of the consumption log: days, filters, and the order of rows.

use serde::{Deserialize, Serialize};

/// The number of rows of an account's day in a store that is the log backend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LogDay {
    /// The day, counted from the Unix epoch, in UTC.
    pub day: i64,
    /// The number of rows in the store.
    pub rows: u64,
}
