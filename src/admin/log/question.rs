//! What is asked of the log, checked.

use std::{ops::RangeInclusive, time::Duration};

use serde::Deserialize;

use super::cursor;
use crate::{
    admin::{accounts, fields, reply::AdminError, state::Admin},
    domain::{
        keys::key::KeyId,
        ledger::{consumption::RETENTION_DAYS, log_filter::LogFilter, tag::Tag},
    },
    sinks::reading::{LogCursor, LogRows},
};

const HOUR_MS: i64 = 3_600_000;
const DAY_MS: i64 = 24 * HOUR_MS;

/// The query of a request.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::admin) struct LogQuestion {
    account: Option<String>,
    key: Option<String>,
    /// The model that was asked for or the one that served.
    model: Option<String>,
    /// The final status, or a class of them, such as `5xx`.
    status: Option<String>,
    /// A tag that the request has.
    tag: Option<String>,
    from: Option<String>,
    /// In place of `from`: the last so many hours, by the store's clock.
    hours: Option<u32>,
    until: Option<String>,
    /// Only rows that the store has: for when the log's home is away.
    store_only: Option<bool>,
    limit: Option<usize>,
    /// The most milliseconds that are spent on looking, if that is less than usual.
    look_ms: Option<u64>,
    cursor: Option<String>,
    /// Each row with the lines of its charge.
    lines: Option<bool>,
}

impl LogQuestion {
    pub(super) fn limit(&self) -> Option<usize> {
        self.limit
    }

    /// How long to look, at most as long as that.
    pub(super) fn look(&self, most: Duration) -> Duration {
        self.look_ms
            .map_or(most, |wanted| most.min(Duration::from_millis(wanted)))
    }

    pub(super) fn lines(&self) -> bool {
        self.lines.unwrap_or(false)
    }

    pub(super) fn model(&self) -> Option<&str> {
        self.model.as_deref()
    }

    /// The place to go on from, as `read` makes it of its text.
    pub(super) fn place<T>(&self, read: impl FnOnce(&str) -> Option<T>) -> Result<Option<T>, AdminError> {
        let place = self.cursor.as_deref().map(|text| {
            let wrong = || AdminError::invalid("cursor: not one of weir's for this order");
            read(text).ok_or_else(wrong)
        });
        place.transpose()
    }

    /// What is asked of rows.
    pub(super) async fn wanted(&self, state: &Admin) -> Result<LogFilter, AdminError> {
        let mut filter = self.filter(state.ledger.now_ms().await?)?;
        if let Some(account) = &self.account {
            accounts::existing(state, account).await?;
        } else if let Some(key) = &filter.key {
            // A key is of one account for ever: other accounts' rows need not be looked through.
            let known = state.store.by_id(key).await?;
            filter.account = known.map(|known| known.record.account.into());
        }
        Ok(filter)
    }

    /// The rows that are asked for.
    pub(super) async fn rows(&self, state: &Admin) -> Result<LogRows, AdminError> {
        let filter = self.wanted(state).await?;
        let begin = LogCursor::before(&filter);
        let from = match self.place(cursor::read)? {
            // Days that have fallen out of the log since the page before need not be asked for.
            Some(cursor) if cursor.day >= begin.day => cursor,
            Some(_) | None => begin,
        };
        Ok(state.log.rows(filter, from, self.store_only.unwrap_or(false)))
    }

    fn filter(&self, now_ms: i64) -> Result<LogFilter, AdminError> {
        let key = self.key.as_deref().map(KeyId::parse).transpose();
        let tag = |text| Tag::parse(text).ok_or_else(|| AdminError::invalid(format!("tag: {}", Tag::RULE)));
        let time = |field, text: &Option<String>| text.as_deref().map(|text| fields::moment(field, text)).transpose();
        let hours = self.hours.map(|hours| now_ms - i64::from(hours) * HOUR_MS);
        if self.from.is_some() && hours.is_some() {
            return Err(AdminError::invalid("hours: not beside from"));
        }
        let oldest = now_ms - i64::from(RETENTION_DAYS) * DAY_MS;
        let tomorrow = (now_ms.div_euclid(DAY_MS) + 1) * DAY_MS;
        let (from, until) = (time("from", &self.from)?, time("until", &self.until)?);
        if let (Some(from), Some(until)) = (from, until)
            && from >= until
        {
            return Err(AdminError::invalid(
                "until: it is not after --from, so no row can match",
            ));
        }
        Ok(LogFilter {
            account: self.account.clone(),
            key: key.map_err(|error| AdminError::invalid(error.to_string()))?,
            model: self.model.clone(),
            status: self.status.as_deref().map(statuses).transpose()?,
            tag: self.tag.as_deref().map(tag).transpose()?,
            ..LogFilter::between(
                from.or(hours).unwrap_or(oldest).max(oldest),
                until.unwrap_or(tomorrow).min(tomorrow),
            )
        })
    }
}

/// `404`, or `4xx` for all from 400 to 499.
fn statuses(text: &str) -> Result<RangeInclusive<u16>, AdminError> {
    let class = text.strip_suffix("xx").filter(|class| class.len() == 1);
    let range = match class {
        Some(class) => class.parse::<u16>().map(|class| class * 100..=class * 100 + 99),
        None => text.parse::<u16>().map(|status| status..=status),
    };
    let range = range.ok().filter(|range| (100..=999).contains(range.start()));
    range.ok_or_else(|| AdminError::invalid("status: a status such as 429, or a class of them such as 5xx"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_one_or_a_class() {
        for (text, range) in [("200", 200..=200), ("5xx", 500..=599), ("499", 499..=499)] {
            assert_eq!(statuses(text).unwrap(), range);
        }
        for wrong in ["", "xx", "5x", "50xx", "0xx", "ok", "99", "-1", "70000"] {
            assert!(statuses(wrong).is_err(), "{wrong}");
        }
    }
}
