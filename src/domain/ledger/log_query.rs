//! Queries of the consumption log: days, filters, and the order of rows.

use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

use crate::domain::{
    keys::KeyId,
    ledger::{consumption::Row, ids::Tag},
};

/// The number of rows of an account's day in a store that is the log backend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LogDay {
    /// The day in UTC, in days since the Unix epoch.
    pub day: i64,
    /// The number of rows in the store.
    pub rows: u64,
}

const DAY_MS: i64 = 24 * 3_600_000;

/// A filter for rows. A row matches if it meets every condition that is set; `None` is no condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogFilter {
    /// The account that paid.
    pub account: Option<String>,
    /// The key of the request.
    pub key: Option<KeyId>,
    /// The name of the requested model or of the model that served the request.
    pub model: Option<String>,
    /// The range of the final status.
    pub status: Option<RangeInclusive<u16>>,
    /// A tag of the request.
    pub tag: Option<Tag>,
    /// The beginning of the time range in which the request ended, in milliseconds since the Unix epoch.
    pub since_ms: i64,
    /// The end of the time range, exclusive, in milliseconds since the Unix epoch.
    pub until_ms: i64,
}

impl LogFilter {
    /// Creates the filter for all rows of requests that ended from `since_ms` to before `until_ms`, in milliseconds since the
    /// Unix epoch.
    pub fn between(since_ms: i64, until_ms: i64) -> Self {
        Self {
            account: None,
            key: None,
            model: None,
            status: None,
            tag: None,
            since_ms,
            until_ms,
        }
    }

    /// Creates the filter for all rows of an account's requests that ended on a day (UTC), in days since the Unix epoch.
    pub fn of_day(account: &str, day: i64) -> Self {
        let begin = day.saturating_mul(DAY_MS);
        Self {
            account: Some(account.to_owned()),
            ..Self::between(begin, begin.saturating_add(DAY_MS))
        }
    }

    /// Returns the same filter, limited to one day, in days since the Unix epoch.
    pub(crate) fn within_day(&self, day: i64) -> Self {
        let begin = day.saturating_mul(DAY_MS);
        Self {
            since_ms: self.since_ms.max(begin),
            until_ms: self.until_ms.min(begin.saturating_add(DAY_MS)),
            ..self.clone()
        }
    }

    /// Whether a row matches the filter.
    pub(crate) fn matches(&self, row: &Row) -> bool {
        (self.since_ms..self.until_ms).contains(&row.time_ms)
            && self.account.as_ref().is_none_or(|account| *account == row.account)
            && self.key.as_ref().is_none_or(|key| *key == row.key_id)
            && self
                .model
                .as_ref()
                .is_none_or(|model| *model == row.model || *model == row.model_asked)
            && self.status.as_ref().is_none_or(|status| status.contains(&row.status))
            && self.tag.as_ref().is_none_or(|tag| row.tags.contains(tag))
    }

    /// Whether `other` is the same filter with the same or an earlier beginning, so that it matches every row that this filter
    /// matches.
    pub(crate) fn is_suffix_of(&self, other: &Self) -> bool {
        self.since_ms >= other.since_ms
            && *self
                == Self {
                    since_ms: self.since_ms,
                    ..other.clone()
                }
    }

    /// Returns the first day of the time range, in days since the Unix epoch.
    pub(crate) fn first_day(&self) -> i64 {
        self.since_ms.div_euclid(DAY_MS)
    }

    /// Returns the last day of the time range, in days since the Unix epoch.
    pub(crate) fn last_day(&self) -> i64 {
        self.until_ms.saturating_sub(1).div_euclid(DAY_MS)
    }
}

/// The position of a row among the rows of its day (UTC). Rows are sorted by account, then by the time at which the request
/// ended, then by the request id, which is unique. The position follows from the row alone, so it is the same in every log
/// backend.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct LogPosition {
    /// The account that paid; empty for the position before all rows.
    pub account: SmolStr,
    /// The time at which the request ended, in milliseconds since the Unix epoch.
    pub time_ms: i64,
    /// The request id that weir has assigned.
    pub request_id: SmolStr,
}

impl LogPosition {
    /// Returns the position of a row.
    pub fn of(row: &Row) -> Self {
        Self {
            account: row.account.clone(),
            time_ms: row.time_ms,
            request_id: row.request_id.clone(),
        }
    }

    /// Returns the position before all rows of an account.
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

    /// Returns the sort key of the position.
    pub(crate) fn sort_key(&self) -> (&str, i64, &str) {
        (&self.account, self.time_ms, &self.request_id)
    }
}

/// Returns the sort key of a row among the rows of its day.
pub(crate) fn row_sort_key(row: &Row) -> (&str, i64, &str) {
    (&row.account, row.time_ms, &row.request_id)
}
