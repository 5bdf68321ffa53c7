//! Which rows of the consumption log are wanted.

use std::ops::RangeInclusive;

use crate::domain::{
    keys::key::KeyId,
    ledger::{consumption::Row, tag::Tag},
};

const DAY_MS: i64 = 24 * 3_600_000;

/// What is asked of a row. All that is given has to be true of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogFilter {
    /// Who paid.
    pub account: Option<String>,
    /// The key of the request.
    pub key: Option<KeyId>,
    /// The model that was asked for, or the one that served.
    pub model: Option<String>,
    /// The final status is one of these.
    pub status: Option<RangeInclusive<u16>>,
    /// A tag that the request has.
    pub tag: Option<Tag>,
    /// The first moment that it may have ended at, in milliseconds since the Unix epoch.
    pub since_ms: i64,
    /// The first moment that is too late.
    pub until_ms: i64,
}

impl LogFilter {
    /// All rows that ended from one moment to before another, in milliseconds since the Unix epoch.
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

    /// The same for one day of those that it asks for.
    pub(crate) fn on(&self, day: i64) -> Self {
        let begin = day.saturating_mul(DAY_MS);
        Self {
            since_ms: self.since_ms.max(begin),
            until_ms: self.until_ms.min(begin.saturating_add(DAY_MS)),
            ..self.clone()
        }
    }

    /// Whether a row is wanted.
    pub(crate) fn takes(&self, row: &Row) -> bool {
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

    /// Whether a row that is wanted is also wanted by another one, which asks for the same but begins earlier, if at all.
    pub(crate) fn is_end_of(&self, other: &Self) -> bool {
        self.since_ms >= other.since_ms
            && *self
                == Self {
                    since_ms: self.since_ms,
                    ..other.clone()
                }
    }

    /// The first day that rows are wanted of.
    pub(crate) fn first_day(&self) -> i64 {
        self.since_ms.div_euclid(DAY_MS)
    }

    /// The last one.
    pub(crate) fn last_day(&self) -> i64 {
        self.until_ms.saturating_sub(1).div_euclid(DAY_MS)
    }
}
