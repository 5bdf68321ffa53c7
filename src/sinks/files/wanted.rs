//! The filter of rows in a file.

use crate::{
    domain::ledger::{log_filter::LogFilter, log_place::LogPosition},
    journal::NumberedRow,
};

/// The rows that match a filter, from an account and time onwards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RowFilter {
    pub(super) filter: LogFilter,
    /// The first account and time. The request id is ignored.
    pub(super) from: LogPosition,
}

impl RowFilter {
    /// All rows that match a filter.
    pub(super) fn for_filter(filter: LogFilter) -> Self {
        Self {
            filter,
            from: LogPosition::default(),
        }
    }

    pub(super) fn matches(&self, row: &NumberedRow) -> bool {
        let row = &row.row;
        self.filter.matches(row)
            && (row.account.as_str(), row.time_ms) >= (self.from.account.as_str(), self.from.time_ms)
    }

    /// Whether [`Wanted::takes`] needs a column.
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
