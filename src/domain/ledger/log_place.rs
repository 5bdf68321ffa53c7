//! The order of the consumption log, wherever its rows are.

use smol_str::SmolStr;

use crate::domain::ledger::consumption::Row;

/// A row's place among those of its day (UTC): by account, then by the time it ended, then by the request's id, which is another
/// one in each row. It follows from the row alone, so that it is the same in every place that has the row.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct LogPlace {
    /// Who paid; empty: the place before all rows.
    pub account: SmolStr,
    /// When it ended, in milliseconds since the Unix epoch.
    pub time_ms: i64,
    /// weir's id of the request.
    pub request_id: SmolStr,
}

impl LogPlace {
    /// Where a row is.
    pub fn of(row: &Row) -> Self {
        Self {
            account: row.account.clone(),
            time_ms: row.time_ms,
            request_id: row.request_id.clone(),
        }
    }

    /// In front of all rows of an account.
    pub(crate) fn before(account: &str) -> Self {
        Self {
            account: account.into(),
            ..Self::default()
        }
    }

    /// Goes to where a row is.
    pub(crate) fn go_to(&mut self, row: &Row) {
        self.account.clone_from(&row.account);
        self.time_ms = row.time_ms;
        self.request_id.clone_from(&row.request_id);
    }

    /// What places are compared by.
    pub(crate) fn order(&self) -> (&str, i64, &str) {
        (&self.account, self.time_ms, &self.request_id)
    }
}

/// What rows of a day are compared by.
pub(crate) fn order(row: &Row) -> (&str, i64, &str) {
    (&row.account, row.time_ms, &row.request_id)
}
