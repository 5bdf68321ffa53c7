//! A day of an account's log, as far as the store has it.

use serde::{Deserialize, Serialize};

/// How many rows of an account's day the store has, and how many it had that are only in the log's home now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogDay {
    /// The day, counted from the Unix epoch, in UTC.
    pub day: i64,
    /// Rows that the store has.
    pub rows: u64,
    /// Rows that have left it. The day's sums still count them.
    pub trimmed: u64,
}

impl LogDay {
    /// All rows that the day has ever had: what its sums are the sums of.
    pub(crate) fn ever(&self) -> u64 {
        self.rows.saturating_add(self.trimmed)
    }
}
