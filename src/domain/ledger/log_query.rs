//! Queries of the consumption log: days, filters, and the order of rows.

use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

use crate::domain::{
    keys::key::KeyId,
    ledger::{consumption::Row, tag::Tag},
};

/// The number of rows of an account's day in a store that is the log backend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LogDay {
    /// The day, counted from the Unix epoch, in UTC.
    pub day: i64,
    /// The number of rows in the store.
    pub rows: u64,
}

const DAY_MS: i64 = 24 * 3_600_000;

/// A filter of rows. A row matches if it meets every condition that is set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogFilter {
    /// The account that paid.
    pub account: Option<String>,
    /// The key of the request.
    pub key: Option<KeyId>,
    /// The requested model or the one that served.
    pub model: Option<String>,
    /// The range of the final status.
    pub status: Option<RangeInclusive<u16>>,
    /// A tag of the request.
    pub tag: Option<Tag>,
    /// The earliest end of the request, in milliseconds since the Unix epoch.
    pub since_ms: i64,
    /// The end of the time range, exclusive.
    pub until_ms: i64,
}

impl LogFilter {
    /// All rows that ended from `since_ms` to before `until_ms`, in milliseconds since the Unix epoch.
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

    /// All rows of an account that ended on a day (days since the Unix epoch, UTC).
    pub fn of_day(account: &str, day: i64) -> Self {
        let begin = day.saturating_mul(DAY_MS);
        Self {
            account: Some(account.to_owned()),
            ..Self::between(begin, begin.saturating_add(DAY_MS))
        }
    }

    /// The same filter, limited to one day.
    pub(crate) fn within_day(&self, day: i64) -> Self {
        let begin = day.saturating_mul(DAY_MS);
        Self {
            since_ms: self.since_ms.max(begin),
            until_ms: self.until_ms.min(begin.saturating_add(DAY_MS)),
            ..self.clone()
        }
    }

    /// Whether a row matches.
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

    /// Whether `other` is the same filter with the same or an earlier start, so that it matches every row that this one matches.
    pub(crate) fn is_suffix_of(&self, other: &Self) -> bool {
        self.since_ms >= other.since_ms
            && *self
                == Self {
                    since_ms: self.since_ms,
                    ..other.clone()
                }
    }

    /// The first day of the time range.
    pub(crate) fn first_day(&self) -> i64 {
        self.since_ms.div_euclid(DAY_MS)
    }

    /// The last day of the time range.
    pub(crate) fn last_day(&self) -> i64 {
        self.until_ms.saturating_sub(1).div_euclid(DAY_MS)
    }
}

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
