//! Pages of the newest rows that the store has, the newest first.

use std::collections::BTreeMap;

use axum::{
    Json,
    extract::{Query, State},
};
use serde_json::{Value, json};

use super::{LOOK_MAX, ROWS_DEFAULT, question::LogQuestion, row_body, unknown_model};
use crate::{
    domain::ledger::usage_report::date,
    edges::clock,
    side::admin::{
        fields,
        reply::{ApiError, JsonResult},
        state::AdminState,
    },
    sinks::reading::{Newest, NewestCursor, NewestError},
    store::ledger::LOG_ROWS_MAX,
};

/// `GET /v1/log/newest`. `in_home` is the day from which on rows have left the store: `/v1/log` has them.
pub(in crate::side::admin) async fn query(
    State(state): State<AdminState>,
    Query(question): Query<LogQuestion>,
) -> JsonResult {
    let limit = question.limit().unwrap_or(ROWS_DEFAULT).clamp(1, LOG_ROWS_MAX);
    let filter = question.wanted(&state).await?;
    let from = question.place(read)?;
    let until = clock::instant() + question.look(LOOK_MAX);
    let Newest {
        rows,
        next,
        looked_at,
        in_home,
    } = state.log.newest(&filter, from, limit, until).await?;
    let prices = question.lines().then_some(&*state.providers);
    let rows: Vec<Value> = rows.iter().map(|row| row_body(row, prices)).collect();
    let unknown_model = question.model().and_then(|model| unknown_model(&state, model));
    Ok(Json(json!({
        "rows": rows,
        "next": next.as_ref().map(text),
        "looked_at": looked_at,
        "in_home": in_home.map(|day| date(day).to_string()),
        "unknown_model": unknown_model,
    })))
}

impl From<NewestError> for ApiError {
    fn from(error: NewestError) -> Self {
        match error {
            NewestError::Store(error) => error.into(),
            error @ NewestError::TooManyAccounts => Self::invalid(error.to_string()),
        }
    }
}

/// `DAY`, and of each account `*ACCOUNT*LEFT`: nothing in it needs another form in an address.
fn text(cursor: &NewestCursor) -> String {
    let mut text = cursor.day.to_string();
    for (account, left) in &cursor.left {
        text.extend(["*", account, "*", &left.to_string()]);
    }
    text
}

/// What [`text`] has written; `None`: that it is not.
fn read(text: &str) -> Option<NewestCursor> {
    let mut parts = text.split('*');
    let day = parts.next()?.parse().ok()?;
    let mut left = BTreeMap::new();
    while let Some(account) = parts.next() {
        let account = fields::account("cursor", account).ok()?;
        left.insert(account, parts.next()?.parse().ok()?);
    }
    Some(NewestCursor { day, left })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_comes_back_as_it_went() {
        for accounts in [&[][..], &["a.b-c_1"], &["acme", "b"]] {
            let left = (40..)
                .zip(accounts)
                .map(|(left, account)| ((*account).to_owned(), left));
            let cursor = NewestCursor {
                day: 20_758,
                left: left.collect(),
            };
            assert_eq!(read(&text(&cursor)), Some(cursor));
        }
        for wrong in ["", "x", "7*", "7*acme", "7*acme*x", "7*no account*1", "7.1.req.a"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }
}
