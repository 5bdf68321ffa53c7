//! Pages of the consumption log, wherever its rows are: by day, then account, then the time they ended.

mod csv;
mod cursor;
pub(crate) mod export;
mod latest;
mod newest;
mod question;

use std::time::{Duration, Instant};

use super::{Admin, ask::Answered, author::Author, parts::Providers};
use crate::{
    api::{
        error::{AdminError, Code},
        log::{Day, LogPage, LogRow, LookedThrough, QueryLog},
    },
    domain::ledger::{consumption::Row, price_lines::price_lines, usage_report::date},
    edges::clock,
    sinks::reading::{LogCursor, LogReadError, LogRows},
    store::ledger::LOG_ROWS_MAX,
};

/// Rows in one answer, unless asked otherwise.
const ROWS_DEFAULT: usize = 500;
/// How long one request may look for rows, unless it wants to wait less. What is left is for the next one, from the cursor on.
const LOOK_MAX: Duration = Duration::from_secs(5);

impl Answered for QueryLog {
    async fn answer(self, admin: &Admin, _: Author) -> Result<LogPage, AdminError> {
        let rows = self.rows(admin).await?;
        let Page { rows, next, seen } = page(rows, self.rows_max(), clock::instant() + self.look_at_most()).await?;
        Ok(LogPage {
            rows: self.shown(admin, rows),
            next: next.as_ref().map(cursor::text),
            looked_through: next.map(|next| LookedThrough {
                before_day: Day(date(next.day)),
                before_account: next.place.account.into(),
                rows_of_account: seen,
            }),
            unknown_model: self.unknown_model(admin),
        })
    }
}

impl QueryLog {
    /// How many rows one answer has.
    fn rows_max(&self) -> usize {
        self.limit.unwrap_or(ROWS_DEFAULT).clamp(1, LOG_ROWS_MAX)
    }

    /// How long to look.
    fn look_at_most(&self) -> Duration {
        self.look_ms
            .map_or(LOOK_MAX, |wanted| LOOK_MAX.min(Duration::from_millis(wanted)))
    }

    /// Rows as the answer has them.
    fn shown(&self, admin: &Admin, rows: Vec<Row>) -> Vec<LogRow> {
        shown(rows, self.lines, &*admin.providers)
    }

    /// What to say where no row has a model that the catalogue does not know either.
    fn unknown_model(&self, admin: &Admin) -> Option<String> {
        let model = self.model.as_deref()?;
        let near = admin.providers.model_named(model).err()?;
        let hint = near.map_or_else(String::new, |near| format!(": did you mean `{near}`?"));
        Some(format!(
            "no row has the model `{model}`, and there is no such model{hint}"
        ))
    }
}

/// What a look at the log found.
pub(crate) struct Page {
    pub(crate) rows: Vec<Row>,
    /// Where to go on; `None`: that was all.
    pub(crate) next: Option<LogCursor>,
    /// How many rows of the account there were looked at already, and will be known to the next look.
    pub(crate) seen: usize,
}

/// Up to `limit` rows. It goes on until there are some, or `until`.
pub(crate) async fn page(rows: LogRows, limit: usize, until: Instant) -> Result<Page, LogReadError> {
    let (mut rows, mut found) = (rows.within(until), Vec::new());
    loop {
        found.extend(rows.next(limit - found.len()).await?);
        let next = rows.cursor();
        if next.is_none() || found.len() == limit || clock::instant() >= until {
            return Ok(Page {
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
                Self::new(Code::LogHomeUnavailable, error.to_string())
            }
            error @ LogReadError::TooManyAccounts(_) => Self::invalid(error.to_string()),
        }
    }
}

/// Rows as they are shown: with lines, each also with what its charge comes from, as far as the prices are in force.
fn shown(rows: Vec<Row>, lines: Option<bool>, prices: &dyn Providers) -> Vec<LogRow> {
    let lines = lines.unwrap_or(false);
    let row = |row: Row| {
        let price_lines = lines.then(|| price_lines(&row, |model| prices.price(&row.provider, model)));
        LogRow::new(row, price_lines)
    };
    rows.into_iter().map(row).collect()
}
