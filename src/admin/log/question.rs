//! Checks queries of the log.

use super::cursor;
use crate::{
    admin::{Admin, accounts},
    api::{
        error::AdminError,
        log::{QueryLog, StatusRange},
        names::AccountId,
        values::Moment,
    },
    domain::ledger::{consumption::RETENTION_DAYS, log_filter::LogFilter},
    sinks::reading::{LogCursor, LogRows},
};

const HOUR_MS: i64 = 3_600_000;
const DAY_MS: i64 = 24 * HOUR_MS;

impl QueryLog {
    /// The position to continue from, which `read` parses.
    pub(super) fn parse_cursor<T>(&self, read: impl FnOnce(&str) -> Option<T>) -> Result<Option<T>, AdminError> {
        let place = self.cursor.as_deref().map(|text| {
            let wrong = || AdminError::of_field("cursor", "it is not a cursor of weir for this order");
            read(text).ok_or_else(wrong)
        });
        place.transpose()
    }

    /// The filter for rows.
    pub(super) async fn row_filter(&self, admin: &Admin) -> Result<LogFilter, AdminError> {
        let mut filter = self.filter(admin.ledger.now_ms().await?)?;
        if let Some(account) = &self.account {
            accounts::existing_account(admin, account.as_str()).await?;
        } else if let Some(key) = &filter.key {
            // A key belongs to one account forever, so other accounts' rows need not be searched.
            let known = admin.store.by_id(key).await?;
            filter.account = known.map(|known| known.record.account.into());
        }
        Ok(filter)
    }

    /// The matching rows.
    pub(super) async fn rows(&self, admin: &Admin) -> Result<LogRows, AdminError> {
        let filter = self.row_filter(admin).await?;
        let begin = LogCursor::before(&filter);
        let from = match self.parse_cursor(cursor::read_cursor)? {
            // Days that have been removed from the log since the previous page are skipped.
            Some(cursor) if cursor.day >= begin.day => cursor,
            Some(_) | None => begin,
        };
        Ok(admin.log.rows(filter, from))
    }

    fn filter(&self, now_ms: i64) -> Result<LogFilter, AdminError> {
        let hours = self.hours.map(|hours| now_ms - i64::from(hours) * HOUR_MS);
        if self.from.is_some() && hours.is_some() {
            return Err(AdminError::of_field("hours", "it cannot be combined with `from`"));
        }
        let oldest = now_ms - i64::from(RETENTION_DAYS) * DAY_MS;
        let tomorrow = (now_ms.div_euclid(DAY_MS) + 1) * DAY_MS;
        let millis = |Moment(at): Moment| at.as_millisecond();
        let (from, until) = (self.from.map(millis), self.until.map(millis));
        if let (Some(from), Some(until)) = (from, until)
            && from >= until
        {
            return Err(AdminError::of_field("until", "it must be after --from"));
        }
        Ok(LogFilter {
            account: self.account.as_ref().map(AccountId::to_string),
            key: self.key.clone(),
            model: self.model.clone(),
            status: self.status.clone().map(|StatusRange(range)| range),
            tag: self.tag.clone(),
            ..LogFilter::between(
                from.or(hours).unwrap_or(oldest).max(oldest),
                until.unwrap_or(tomorrow).min(tomorrow),
            )
        })
    }
}
