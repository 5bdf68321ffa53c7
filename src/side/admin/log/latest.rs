//! The latest rows of a key, the newest first, without reading all that came before them: those of the store, and where these are
//! too few, those of the log's home.

use axum::{
    Json,
    extract::{Query, State},
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::row_body;
use crate::{
    domain::{
        keys::key::KeyId,
        ledger::{consumption::Row, log_place},
    },
    side::admin::{
        accounts,
        reply::{ApiError, JsonResult},
        state::AdminState,
    },
    store::{
        StoreError,
        ledger::{LOG_ROWS_MAX, LedgerStore},
    },
};

/// The most rows of one answer.
const ROWS_MAX: usize = 100;
const DAY_MS: i64 = 24 * 3_600_000;
/// How many days are looked at, today and those before it.
const DAYS: i64 = 31;
/// Questions to the store that one request may cause.
const STORE_CALLS_MAX: usize = 64;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::side::admin) struct LatestQuery {
    account: String,
    key: String,
    limit: Option<usize>,
}

/// `GET /v1/log/latest`
pub(in crate::side::admin) async fn query(
    State(state): State<AdminState>,
    Query(query): Query<LatestQuery>,
) -> JsonResult {
    let key = KeyId::parse(&query.key).map_err(|error| ApiError::invalid(error.to_string()))?;
    let account = accounts::existing(&state, &query.account).await?.id;
    let limit = query.limit.unwrap_or(ROWS_MAX).clamp(1, ROWS_MAX);
    let today = state.ledger.now_ms().await?.div_euclid(DAY_MS);
    let mut rows = latest(&*state.ledger, (&account, &key), today, limit).await?;
    // The store has the newest ones. Where it has too few, others may have left it.
    let mut not_read = None;
    if rows.len() < limit {
        match state
            .log
            .homes()
            .latest(&account, &key, today - DAYS + 1..=today, limit)
            .await
        {
            Ok(of_home) => rows = together(rows, of_home, limit),
            Err(error) => not_read = Some(error.to_string()),
        }
    }
    let rows: Vec<Value> = rows.iter().map(row_body).collect();
    Ok(Json(json!({ "rows": rows, "not_read": not_read })))
}

/// The latest of both, each once.
fn together(of_store: Vec<Row>, of_home: Vec<Row>, limit: usize) -> Vec<Row> {
    let mut rows: Vec<Row> = of_store.into_iter().chain(of_home).collect();
    rows.sort_by(|one, other| log_place::order(other).cmp(&log_place::order(one)));
    rows.dedup_by(|one, other| log_place::order(one) == log_place::order(other));
    rows.truncate(limit);
    rows
}

/// The last rows of the key, as far as a bounded number of questions to the store tells.
async fn latest(
    ledger: &dyn LedgerStore,
    (account, key): (&str, &KeyId),
    today: i64,
    limit: usize,
) -> Result<Vec<Row>, StoreError> {
    let mut found = Vec::new();
    let mut look = Look {
        ledger,
        account,
        calls: STORE_CALLS_MAX,
    };
    for day in (today - DAYS + 1..=today).rev() {
        let mut page = look.last_page(day).await?;
        while let Some(number) = page {
            let rows = look.rows(day, number, LOG_ROWS_MAX).await?;
            let of_key = rows.into_iter().rev().filter(|row| row.key_id == *key);
            found.extend(of_key.take(limit - found.len()));
            if found.len() == limit {
                return Ok(found);
            }
            page = number.checked_sub(1);
        }
    }
    Ok(found)
}

/// A look into an account's log, with a limited number of calls. Without any left, it finds nothing.
struct Look<'a> {
    ledger: &'a dyn LedgerStore,
    account: &'a str,
    calls: usize,
}

impl Look<'_> {
    /// Up to `limit` rows of a page of a day.
    async fn rows(&mut self, day: i64, page: usize, limit: usize) -> Result<Vec<Row>, StoreError> {
        let Some(left) = self.calls.checked_sub(1) else {
            return Ok(Vec::new());
        };
        self.calls = left;
        self.ledger.rows(self.account, day, page * LOG_ROWS_MAX, limit).await
    }

    /// The number of a day's last page that has rows; `None` if none has.
    async fn last_page(&mut self, day: i64) -> Result<Option<usize>, StoreError> {
        if self.rows(day, 0, 1).await?.is_empty() {
            return Ok(None);
        }
        let (mut last, mut beyond) = (0, 1);
        while !self.rows(day, beyond, 1).await?.is_empty() {
            (last, beyond) = (beyond, beyond * 2);
        }
        while beyond - last > 1 {
            let middle = last + (beyond - last) / 2;
            if self.rows(day, middle, 1).await?.is_empty() {
                beyond = middle;
            } else {
                last = middle;
            }
        }
        Ok(Some(last))
    }
}
