//! Pages of the consumption log, wherever its rows are: by day, then account, then the time they ended.

mod csv;
mod cursor;
pub(super) mod export;
pub(super) mod latest;
pub(super) mod newest;
mod question;

use std::time::{Duration, Instant};

use axum::{Json, extract::State};
use serde::Serialize;
use serde_json::{Value, json};

use super::{
    parts::Providers,
    query::Query,
    reply::{AdminError, JsonResult, time_ms},
    state::Admin,
};
use crate::{
    api::error::Code,
    domain::ledger::{consumption::Row, price_lines::price_lines, usage_report::date},
    edges::clock,
    sinks::reading::{LogCursor, LogReadError, LogRows},
    store::ledger::LOG_ROWS_MAX,
};

use question::LogQuestion;

/// Rows in one answer, unless asked otherwise.
const ROWS_DEFAULT: usize = 500;
/// How long one request may look for rows, unless it wants to wait less. What is left is for the next one, from the cursor on.
const LOOK_MAX: Duration = Duration::from_secs(5);

/// `GET /v1/log`
pub(super) async fn query(State(state): State<Admin>, Query(question): Query<LogQuestion>) -> JsonResult {
    let limit = question.limit().unwrap_or(ROWS_DEFAULT).clamp(1, LOG_ROWS_MAX);
    let rows = question.rows(&state).await?;
    let Page { rows, next, seen } = page(rows, limit, clock::instant() + question.look(LOOK_MAX)).await?;
    let looked = next.as_ref().map(|next| looked_through(next, seen));
    let rows: Vec<Value> = rows
        .iter()
        .map(|row| row_body(row, question.lines().then_some(&*state.providers)))
        .collect();
    let unknown_model = question.model().and_then(|model| unknown_model(&state, model));
    let next = next.map(|place| cursor::text(&place));
    Ok(Json(
        json!({ "rows": rows, "next": next, "looked_through": looked, "unknown_model": unknown_model }),
    ))
}

/// How far the log has been looked through: the days before one, of that one the accounts before one, and some rows of that.
fn looked_through(next: &LogCursor, seen: usize) -> Value {
    json!({ "before_day": date(next.day).to_string(), "before_account": next.place.account, "rows_of_account": seen })
}

/// What to say where no row has a model that the catalogue does not know either.
fn unknown_model(state: &Admin, model: &str) -> Option<String> {
    let near = state.providers.model_named(model).err()?;
    let hint = near.map_or_else(String::new, |near| format!(": did you mean `{near}`?"));
    Some(format!(
        "no row has the model `{model}`, and there is no such model{hint}"
    ))
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
                seen: rows.seen_ahead(),
                rows: found,
            });
        }
    }
}

impl From<LogReadError> for AdminError {
    fn from(error: LogReadError) -> Self {
        match error {
            LogReadError::Store(error) => error.into(),
            error @ LogReadError::Home(_) => Self::new(Code::LogHomeUnavailable, error.to_string()),
        }
    }
}

/// A row as it is shown: its own fields behind its time.
#[derive(Serialize)]
struct Shown<'a> {
    time: Value,
    #[serde(flatten)]
    row: &'a Row,
}

impl<'a> Shown<'a> {
    fn of(row: &'a Row) -> Self {
        let time = time_ms(row.time_ms);
        Self { time, row }
    }
}

/// With the prices in force, also what its charge comes from: `price_lines`, null where it was charged at others.
fn row_body(row: &Row, prices: Option<&dyn Providers>) -> Value {
    // Nothing in a row cannot be JSON.
    let mut body = serde_json::to_value(Shown::of(row)).unwrap_or_default();
    if let (Some(prices), Value::Object(fields)) = (prices, &mut body) {
        let lines = price_lines(row, |model| prices.price(&row.provider, model));
        fields.insert("price_lines".to_owned(), json!(lines));
    }
    body
}
