//! The order of the consumption log.

use smol_str::SmolStr;

use crate::domain::ledger::consumption::Row;

/// A row's position among the rows of its day (UTC): by account, then by the time of its end, then by the request's id, which is
/// unique. The position follows from the row alone, so it is the same in every log backend.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct LogPosition {
    /// The account that paid; empty for the position before all rows.
    pub account: SmolStr,
    /// When it ended, in milliseconds since the Unix epoch.
    pub time_ms: i64,
    /// weir's id of the request.
    pub request_id: SmolStr,
}

impl LogPosition {
    /// The position of a row.
    pub fn of(row: &Row) -> Self {
        Self {
            account: row.account.clone(),
            time_ms: row.time_ms,
            request_id: row.request_id.clone(),
        }
    }

    /// The position before all rows of an account.
    pub(crate) fn before_account(account: &str) -> Self {
        Self {
            account: account.into(),
            ..Self::default()
        }
    }

    /// Moves to the position of a row.
    pub(crate) fn move_to(&mut self, row: &Row) {
        self.account.clone_from(&row.account);
        self.time_ms = row.time_ms;
        self.request_id.clone_from(&row.request_id);
    }

    /// The sort key of the position.
    pub(crate) fn sort_key(&self) -> (&str, i64, &str) {
        (&self.account, self.time_ms, &self.request_id)
    }
}

/// The sort key of rows of a day.
pub(crate) fn row_sort_key(row: &Row) -> (&str, i64, &str) {
    (&row.account, row.time_ms, &row.request_id)
}
