//! A day of an account's log, as the store has it where it is the log's home.

use serde::{Deserialize, Serialize};

/// How many rows of an account's day the store has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LogDay {
    /// The day, counted from the Unix epoch, in UTC.
    pub day: i64,
    /// Rows that the store has.
    pub rows: u64,
}
