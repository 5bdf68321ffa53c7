//! What is looked for in a file.

use crate::{
    domain::ledger::{log_filter::LogFilter, log_place::LogPlace},
    journal::NumberedRow,
};

/// Rows that a filter takes, from an account and a time on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    pub(super) filter: LogFilter,
    /// Rows of the same account and time are wanted, whatever their ids.
    pub(super) from: LogPlace,
}

impl Wanted {
    /// All that a filter takes.
    pub(super) fn all(filter: LogFilter) -> Self {
        Self {
            filter,
            from: LogPlace::default(),
        }
    }

    pub(super) fn takes(&self, row: &NumberedRow) -> bool {
        let row = &row.row;
        self.filter.takes(row) && (row.account.as_str(), row.time_ms) >= (self.from.account.as_str(), self.from.time_ms)
    }

    /// Whether [`Wanted::takes`] looks at a column.
    pub(super) fn is_decided_by(&self, column: &str) -> bool {
        let filter = &self.filter;
        match column {
            "account" | "time" => true,
            "key_id" => filter.key.is_some(),
            "model" | "model_asked" => filter.model.is_some(),
            "status" => filter.status.is_some(),
            "tags" => filter.tag.is_some(),
            _ => false,
        }
    }
}
