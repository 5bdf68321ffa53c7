//! Pages of the consumption log, from all backends. `QueryLog` lists rows by day, then account, then the time they ended.

mod csv;
mod cursor;
pub(crate) mod export;
mod latest;
mod newest;
mod question;

use std::time::{Duration, Instant};

use super::{Admin, ask::AdminHandler, author::Author, parts::ProviderDirectory};
use crate::{
    api::{
        error::{AdminError, AdminErrorCode},
        log::{LogQueryPage, LogRow, QueryLog, SearchPosition, UtcDay},
    },
    domain::ledger::{consumption::Row, price_lines::price_lines, usage_report::date_of_day},
    edges::clock,
    sinks::reading::{LogCursor, LogReadError, LogRows},
    store::ledger::LOG_ROWS_MAX,
};

/// The default number of rows in an answer.
const ROWS_DEFAULT: usize = 500;
/// The maximum time that one request searches for rows. The next request continues from the cursor.
const LOOK_MAX: Duration = Duration::from_secs(5);

impl AdminHandler for QueryLog {
    async fn answer(self, admin: &Admin, _: Author) -> Result<LogQueryPage, AdminError> {
        let rows = self.rows(admin).await?;
        let LogRowsPage { rows, next, seen } =
            read_page(rows, self.rows_max(), clock::instant() + self.search_time()).await?;
        Ok(LogQueryPage {
            rows: self.to_log_rows(admin, rows),
            next: next.as_ref().map(cursor::write_cursor),
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
    /// The maximum number of rows in the answer.
    fn rows_max(&self) -> usize {
        self.limit.unwrap_or(ROWS_DEFAULT).clamp(1, LOG_ROWS_MAX)
    }

    /// How long to search.
    fn search_time(&self) -> Duration {
        self.look_ms
            .map_or(LOOK_MAX, |wanted| LOOK_MAX.min(Duration::from_millis(wanted)))
    }

    /// Converts rows to those of the answer.
    fn to_log_rows(&self, admin: &Admin, rows: Vec<Row>) -> Vec<LogRow> {
        log_rows(rows, self.lines, &*admin.providers)
    }

    /// A hint, if the catalogue does not know the model of the filter.
    fn unknown_model(&self, admin: &Admin) -> Option<String> {
        let model = self.model.as_deref()?;
        let near = admin.providers.model_named(model).err()?;
        let hint = near.map_or_else(String::new, |near| format!(": did you mean `{near}`?"));
        Some(format!(
            "no row has the model `{model}`, and that model does not exist{hint}"
        ))
    }
}

/// A page of the log.
pub(crate) struct LogRowsPage {
    pub(crate) rows: Vec<Row>,
    /// Where the next page begins; `None` after the last row.
    pub(crate) next: Option<LogCursor>,
    /// How many rows of the next page's first account have been searched already.
    pub(crate) seen: usize,
}

/// Up to `limit` rows. Searches until it has that many, or until `until`.
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

/// Converts rows to those of answers. With `lines`, each has the lines of its charge, if its prices are still in force.
fn log_rows(rows: Vec<Row>, lines: Option<bool>, prices: &dyn ProviderDirectory) -> Vec<LogRow> {
    let lines = lines.unwrap_or(false);
    let row = |row: Row| {
        let price_lines = lines.then(|| price_lines(&row, |model| prices.price(&row.provider, model)));
        LogRow::new(row, price_lines)
    };
    rows.into_iter().map(row).collect()
}
