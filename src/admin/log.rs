//! Calls of the admin API that return pages of the consumption log, from all log backends. `QueryLog` sorts rows by day, then by
//! account, and then by the time at which the request ended.

pub(crate) mod export;

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use crate::{
    admin::{Admin, AdminHandler, ProviderDirectory, accounts, audit::Author},
    api::{
        AdminError, AdminErrorCode,
        log::{
            LatestRows, ListLatestRows, ListNewestRows, LogQueryPage, LogRow, NewestPage, QueryLog, SearchPosition,
            StatusRange, UtcDay,
        },
        values::{AccountId, Moment},
    },
    domain::ledger::{
        consumption::{RETENTION_DAYS, Row, price_lines},
        log_query::{LogFilter, LogPosition},
        reports::date_of_day,
    },
    edges::clock,
    sinks::{
        LatestKeyRows, ListsCursor, NewestCursor, NewestRows, NewestRowsQuery, SliceCursor,
        reading::{LogCursor, LogReadError, LogRows},
    },
    store::ledger::LOG_ROWS_MAX,
};

/// The default number of rows in one answer.
const ROWS_DEFAULT: usize = 500;
/// The maximum time for which one call searches for rows. After this time, the call returns a cursor, and the next call continues
/// the search from there.
const LOOK_MAX: Duration = Duration::from_secs(5);

impl AdminHandler for QueryLog {
    async fn answer(self, admin: &Admin, _: Author) -> Result<LogQueryPage, AdminError> {
        let rows = self.rows(admin).await?;
        let LogRowsPage { rows, next, seen } =
            read_page(rows, self.rows_max(), clock::instant() + self.search_time()).await?;
        Ok(LogQueryPage {
            rows: self.to_log_rows(admin, rows),
            next: next.as_ref().map(write_cursor),
            looked_through: next.map(|next| SearchPosition {
                before_day: UtcDay(date_of_day(next.day)),
                before_account: next.place.account.into(),
                rows_of_account: seen,
            }),
            unknown_model: self.unknown_model(admin),
        })
    }
}

impl QueryLog {
    /// Returns the maximum number of rows in the answer.
    fn rows_max(&self) -> usize {
        self.limit.unwrap_or(ROWS_DEFAULT).clamp(1, LOG_ROWS_MAX)
    }

    /// Returns the maximum time to search for rows.
    fn search_time(&self) -> Duration {
        self.look_ms
            .map_or(LOOK_MAX, |wanted| LOOK_MAX.min(Duration::from_millis(wanted)))
    }

    /// Converts rows of the log to rows of this call's answer.
    fn to_log_rows(&self, admin: &Admin, rows: Vec<Row>) -> Vec<LogRow> {
        log_rows(rows, self.lines, &*admin.providers)
    }

    /// Returns an explanation if the filter names a model that the catalogue does not have. Otherwise returns `None`.
    fn unknown_model(&self, admin: &Admin) -> Option<String> {
        let model = self.model.as_deref()?;
        let near = admin.providers.model_named(model).err()?;
        let hint = near.map_or_else(String::new, |near| format!(": did you mean `{near}`?"));
        Some(format!(
            "no row has the model `{model}`, and that model does not exist{hint}"
        ))
    }
}

/// A page of the consumption log.
pub(crate) struct LogRowsPage {
    pub(crate) rows: Vec<Row>,
    /// The cursor of the next page. `None` if there are no further rows.
    pub(crate) next: Option<LogCursor>,
    /// The next page begins within the rows of one account and day. This is the number of these rows that have already been
    /// searched.
    pub(crate) seen: usize,
}

/// Reads up to `limit` rows. Stops the search at the time `until`.
pub(crate) async fn read_page(rows: LogRows, limit: usize, until: Instant) -> Result<LogRowsPage, LogReadError> {
    let (mut rows, mut found) = (rows.with_deadline(until), Vec::new());
    loop {
        found.extend(rows.next(limit - found.len()).await?);
        let next = rows.cursor();
        if next.is_none() || found.len() == limit || clock::instant() >= until {
            return Ok(LogRowsPage {
                next: next.cloned(),
                seen: rows.looked_at(),
                rows: found,
            });
        }
    }
}

impl From<LogReadError> for AdminError {
    fn from(error: LogReadError) -> Self {
        match error {
            LogReadError::Store(error) => error.into(),
            error @ (LogReadError::Home(_) | LogReadError::Behind(_)) => {
                Self::new(AdminErrorCode::LogHomeUnavailable, error.to_string())
            }
            error @ LogReadError::TooManyAccounts(_) => Self::invalid(error.to_string()),
        }
    }
}

/// Converts rows of the log to rows of answers. If `lines` is true, each row has the price lines of its charge, unless the prices
/// have changed since the request was charged.
fn log_rows(rows: Vec<Row>, lines: Option<bool>, prices: &dyn ProviderDirectory) -> Vec<LogRow> {
    let lines = lines.unwrap_or(false);
    let row = |row: Row| {
        let price_lines = lines.then(|| price_lines(&row, |model| prices.price(&row.provider, model)));
        LogRow::new(row, price_lines)
    };
    rows.into_iter().map(row).collect()
}

const HOUR_MS: i64 = 3_600_000;
const DAY_MS: i64 = 24 * HOUR_MS;

impl QueryLog {
    /// Returns the position from which to continue; `None` for the beginning. `read` parses the cursor.
    fn parse_cursor<T>(&self, read: impl FnOnce(&str) -> Option<T>) -> Result<Option<T>, AdminError> {
        let place = self.cursor.as_deref().map(|text| {
            let wrong = || {
                AdminError::of_field(
                    "cursor",
                    "the value is not a cursor for this order: give the `next` of a page in the same order",
                )
            };
            read(text).ok_or_else(wrong)
        });
        place.transpose()
    }

    /// Returns the filter that rows must match.
    async fn row_filter(&self, admin: &Admin) -> Result<LogFilter, AdminError> {
        let mut filter = self.filter(admin.ledger.now_ms().await?)?;
        if let Some(account) = &self.account {
            accounts::existing_account(admin, account.as_str()).await?;
        } else if let Some(key) = &filter.key {
            // The rows of other accounts need not be searched, because a key always belongs to the same account.
            let known = admin.store.by_id(key).await?;
            filter.account = known.map(|known| known.record.account.into());
        }
        Ok(filter)
    }

    /// Returns a reader of the rows that match the call's filter.
    async fn rows(&self, admin: &Admin) -> Result<LogRows, AdminError> {
        let filter = self.row_filter(admin).await?;
        let begin = LogCursor::before(&filter);
        let from = match self.parse_cursor(read_cursor)? {
            // If the cursor's day has been removed from the log since the previous page, reading continues on the first remaining
            // day.
            Some(cursor) if cursor.day >= begin.day => cursor,
            Some(_) | None => begin,
        };
        Ok(admin.log.rows(filter, from))
    }

    fn filter(&self, now_ms: i64) -> Result<LogFilter, AdminError> {
        let hours = self.hours.map(|hours| now_ms - i64::from(hours) * HOUR_MS);
        if self.from.is_some() && hours.is_some() {
            return Err(AdminError::of_field(
                "hours",
                "the field cannot be combined with `from`",
            ));
        }
        let oldest = now_ms - i64::from(RETENTION_DAYS) * DAY_MS;
        let tomorrow = (now_ms.div_euclid(DAY_MS) + 1) * DAY_MS;
        let millis = |Moment(at): Moment| at.as_millisecond();
        let (from, until) = (self.from.map(millis), self.until.map(millis));
        if let (Some(from), Some(until)) = (from, until)
            && from >= until
        {
            return Err(AdminError::of_field("until", "the time must be after `from`"));
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

/// The maximum length of a request id in a cursor, in bytes.
const ID_BYTES_MAX: usize = 128;

/// Formats a cursor as `DAY.TIME.REQUEST.ACCOUNT`. The last two parts are empty for the beginning of a day.
fn write_cursor(cursor: &LogCursor) -> String {
    let LogPosition {
        account,
        time_ms,
        request_id,
    } = &cursor.place;
    format!("{}.{time_ms}.{request_id}.{account}", cursor.day)
}

/// Parses a cursor that [`write_cursor`] has formatted. Returns `None` for any other text.
fn read_cursor(text: &str) -> Option<LogCursor> {
    let mut parts = text.splitn(4, '.');
    let (day, time, id, account) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let is_begin = id.is_empty() && account.is_empty();
    if !is_begin && (id.len() > ID_BYTES_MAX || account.parse::<AccountId>().is_err()) {
        return None;
    }
    let place = LogPosition {
        account: account.into(),
        time_ms: time.parse().ok()?,
        request_id: id.into(),
    };
    Some(LogCursor {
        day: day.parse().ok()?,
        place: if is_begin { LogPosition::default() } else { place },
    })
}

/// The prefix of a cursor whose position is in rows that are sorted by time. A cursor without this prefix contains a position in
/// the store's lists of rows. The store has one list for each account and day.
const HOME: &str = "h*";

impl AdminHandler for ListNewestRows {
    async fn answer(self, admin: &Admin, _: Author) -> Result<NewestPage, AdminError> {
        let Self(asked) = self;
        let newest = admin.log.newest(NewestRowsQuery {
            filter: asked.row_filter(admin).await?,
            from: asked.parse_cursor(read_newest_cursor)?,
            limit: asked.rows_max(),
            until: clock::instant() + asked.search_time(),
        });
        let NewestRows { rows, next, looked_at } = newest.await?;
        Ok(NewestPage {
            rows: asked.to_log_rows(admin, rows),
            next: next.as_ref().map(write_newest_cursor),
            looked_at,
            unknown_model: asked.unknown_model(admin),
        })
    }
}

/// Formats a cursor. A position in the store's lists of a day has the form `DAY`, followed by `*ACCOUNT*LEFT` for each account
/// whose list has been read at least in part. LEFT is the number of unread rows in this list. Any other position has the form
/// `h*LENGTH*TIME*ACCOUNT*REQUEST`. A cursor needs no encoding in a URL.
fn write_newest_cursor(cursor: &NewestCursor) -> String {
    match cursor {
        NewestCursor::InLists(ListsCursor { day, left }) => {
            let mut text = day.to_string();
            for (account, left) in left {
                text.extend(["*", account, "*", &left.to_string()]);
            }
            text
        }
        NewestCursor::InSlices(SliceCursor {
            time_ms,
            account,
            request_id,
            length_ms,
        }) => format!("{HOME}{length_ms}*{time_ms}*{account}*{request_id}"),
    }
}

/// Parses a cursor that [`write_newest_cursor`] has formatted. Returns `None` for any other text.
fn read_newest_cursor(text: &str) -> Option<NewestCursor> {
    if let Some(of_home) = text.strip_prefix(HOME) {
        let mut parts = of_home.splitn(4, '*');
        let (length, time) = (parts.next()?, parts.next()?);
        return Some(NewestCursor::InSlices(SliceCursor {
            length_ms: length.parse().ok()?,
            time_ms: time.parse().ok()?,
            account: parts.next()?.into(),
            request_id: parts.next()?.into(),
        }));
    }
    let mut parts = text.split('*');
    let day = parts.next()?.parse().ok()?;
    let mut left = BTreeMap::new();
    while let Some(account) = parts.next() {
        let account: AccountId = account.parse().ok()?;
        left.insert(account.to_string(), parts.next()?.parse().ok()?);
    }
    Some(NewestCursor::InLists(ListsCursor { day, left }))
}

/// The maximum number of rows in one answer with the most recent rows of a key.
const ROWS_MAX: usize = 100;
const MS_PER_DAY: i64 = 24 * 3_600_000;
/// The number of days that are searched for the most recent rows of a key, including today.
const DAYS_SEARCHED: i64 = 31;

impl AdminHandler for ListLatestRows {
    async fn answer(self, admin: &Admin, _: Author) -> Result<LatestRows, AdminError> {
        let account = accounts::existing_account(admin, self.account.as_str()).await?.id;
        let limit = self.limit.unwrap_or(ROWS_MAX).clamp(1, ROWS_MAX);
        let today = admin.ledger.now_ms().await?.div_euclid(MS_PER_DAY);
        let latest = admin
            .log
            .latest(&account, &self.key, today - DAYS_SEARCHED + 1..=today, limit);
        let (found, not_read) = match latest.await {
            Ok((found, not_read)) => (found, not_read.map(|error| error.to_string())),
            Err(error @ LogReadError::Behind(_)) => (LatestKeyRows::default(), Some(error.to_string())),
            Err(error) => return Err(error.into()),
        };
        Ok(LatestRows {
            rows: log_rows(found.rows, self.lines, &*admin.providers),
            not_read,
            whole: found.is_complete,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_comes_back_as_it_went() {
        let place = |account: &str, time_ms, request_id: &str| LogPosition {
            account: account.into(),
            time_ms,
            request_id: request_id.into(),
        };
        for place in [place("a.b-c", 1_793_491_200_123, "req_Ab1"), LogPosition::default()] {
            let cursor = LogCursor { day: 20_758, place };
            assert_eq!(read_cursor(&write_cursor(&cursor)), Some(cursor));
        }
        for wrong in ["", "7", "7.0", "7.x..", "7.1.req.", "7.1.req.no account", "x.1.req.a"] {
            assert_eq!(read_cursor(wrong), None, "{wrong}");
        }
    }
}

#[cfg(test)]
mod newest_tests {
    use super::*;

    #[test]
    fn a_place_comes_back_as_it_went() {
        for accounts in [&[][..], &["a.b-c_1"], &["acme", "b"]] {
            let left = (40..)
                .zip(accounts)
                .map(|(left, account)| ((*account).to_owned(), left));
            let cursor = NewestCursor::InLists(ListsCursor {
                day: 20_758,
                left: left.collect(),
            });
            assert_eq!(read_newest_cursor(&write_newest_cursor(&cursor)), Some(cursor));
        }
        for (account, request_id) in [("", ""), ("a.b-c", "req_Ab1")] {
            let cursor = NewestCursor::InSlices(SliceCursor {
                time_ms: 1_793_491_200_123,
                account: account.into(),
                request_id: request_id.into(),
                length_ms: 3_600_000,
            });
            assert_eq!(read_newest_cursor(&write_newest_cursor(&cursor)), Some(cursor));
        }
        for wrong in [
            "",
            "x",
            "7*",
            "7*acme",
            "7*acme*x",
            "7*no account*1",
            "7.1.req.a",
            "h*1*2",
            "h*x*2*a*b",
        ] {
            assert_eq!(read_newest_cursor(wrong), None, "{wrong}");
        }
    }
}
