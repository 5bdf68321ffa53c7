//! Pages of the log with the newest rows first.

use std::collections::BTreeMap;

use axum::{Json, extract::State};
use serde_json::{Value, json};

use super::{LOOK_MAX, ROWS_DEFAULT, question::LogQuestion, row_body, unknown_model};
use crate::{
    admin::{
        fields,
        query::Query,
        reply::{AdminError, JsonResult},
        state::Admin,
    },
    edges::clock,
    sinks::reading::{Newest, NewestCursor, NewestError, SliceCursor, StoreCursor},
    store::ledger::LOG_ROWS_MAX,
};

/// What a place begins with where rows have left the store.
const HOME: &str = "h*";

/// `GET /v1/log/newest`
pub(in crate::admin) async fn query(State(state): State<Admin>, Query(question): Query<LogQuestion>) -> JsonResult {
    let limit = question.limit().unwrap_or(ROWS_DEFAULT).clamp(1, LOG_ROWS_MAX);
    let filter = question.wanted(&state).await?;
    let from = question.place(read)?;
    let until = clock::instant() + question.look(LOOK_MAX);
    let Newest { rows, next, looked_at } = state.log.newest(&filter, from, limit, until).await?;
    let prices = question.lines().then_some(&*state.providers);
    let rows: Vec<Value> = rows.iter().map(|row| row_body(row, prices)).collect();
    let unknown_model = question.model().and_then(|model| unknown_model(&state, model));
    Ok(Json(json!({
        "rows": rows,
        "next": next.as_ref().map(text),
        "looked_at": looked_at,
        "unknown_model": unknown_model,
    })))
}

impl From<NewestError> for AdminError {
    fn from(error: NewestError) -> Self {
        match error {
            NewestError::Read(error) => error.into(),
            error @ NewestError::TooManyAccounts => Self::invalid(error.to_string()),
        }
    }
}

/// `DAY`, and of each account `*ACCOUNT*LEFT`; where rows have left the store `h*LENGTH*TIME*ACCOUNT*REQUEST`. Nothing in it needs
/// another form in an address.
fn text(cursor: &NewestCursor) -> String {
    match cursor {
        NewestCursor::InStore(StoreCursor { day, left }) => {
            let mut text = day.to_string();
            for (account, left) in left {
                text.extend(["*", account, "*", &left.to_string()]);
            }
            text
        }
        NewestCursor::InHome(SliceCursor {
            time_ms,
            account,
            request_id,
            length_ms,
        }) => format!("{HOME}{length_ms}*{time_ms}*{account}*{request_id}"),
    }
}

/// What [`text`] has written; `None`: that it is not.
fn read(text: &str) -> Option<NewestCursor> {
    if let Some(of_home) = text.strip_prefix(HOME) {
        let mut parts = of_home.splitn(4, '*');
        let (length, time) = (parts.next()?, parts.next()?);
        return Some(NewestCursor::InHome(SliceCursor {
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
        let account = fields::account("cursor", account).ok()?;
        left.insert(account, parts.next()?.parse().ok()?);
    }
    Some(NewestCursor::InStore(StoreCursor { day, left }))
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
            let cursor = NewestCursor::InStore(StoreCursor {
                day: 20_758,
                left: left.collect(),
            });
            assert_eq!(read(&text(&cursor)), Some(cursor));
        }
        for (account, request_id) in [("", ""), ("a.b-c", "req_Ab1")] {
            let cursor = NewestCursor::InHome(SliceCursor {
                time_ms: 1_793_491_200_123,
                account: account.into(),
                request_id: request_id.into(),
                length_ms: 3_600_000,
            });
            assert_eq!(read(&text(&cursor)), Some(cursor));
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
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }
}
