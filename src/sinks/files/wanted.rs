//! What is looked for in a file.

use super::schema;
use crate::{
    domain::ledger::{log_filter::LogFilter, log_place::LogPlace},
    journal::NumberedRow,
};

/// What is read of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Columns {
    All,
    /// Those of [`crate::sinks::asks::PageAsk::counted_only`], by which rows are in order, and by which they are chosen.
    Counted,
}

/// Rows that a filter takes, from an account and a time on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    pub(super) filter: LogFilter,
    pub(super) columns: Columns,
    /// Rows of the same account and time are wanted, whatever their ids.
    pub(super) from: LogPlace,
}

impl Wanted {
    /// All that a filter takes.
    pub(super) fn all(filter: LogFilter) -> Self {
        Self {
            filter,
            columns: Columns::All,
            from: LogPlace::default(),
        }
    }

    /// Whether a column is read.
    pub(super) fn reads(&self, column: &str) -> bool {
        let is_counted = || {
            matches!(
                column,
                "number" | "time" | "request_id" | "account" | "key_id" | "model" | "status" | "cost_nano_usd" | "tags"
            ) || schema::is_of_usage(column)
        };
        self.columns == Columns::All || is_counted() || self.is_decided_by(column)
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
