//! Pages of the consumption log: by account, then day, in the order of writing.

pub(super) mod latest;

use axum::{
    Json,
    extract::{Query, State},
};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{
    accounts, fields,
    reply::{ApiError, JsonResult, time_ms},
    state::AdminState,
};
use crate::{
    domain::{
        keys::key::KeyId,
        ledger::{
            AccountView,
            consumption::{RETENTION_DAYS, Row},
            tag::Tag,
        },
    },
    store::{
        StoreError,
        ledger::{LOG_ROWS_MAX, LedgerStore},
    },
};

/// Rows in one answer, unless asked otherwise.
const ROWS_DEFAULT: usize = 500;
/// Questions to the store that one request may cause, besides those below. What is left is for the next one, from the cursor on.
const STORE_CALLS_MAX: usize = 64;
/// Days without rows that one request may look at: they cost next to nothing. More than five accounts have.
const EMPTY_DAYS_MAX: usize = 1024;
const HOUR_MS: i64 = 3_600_000;
const DAY_MS: i64 = 24 * HOUR_MS;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LogQuery {
    account: Option<String>,
    key: Option<String>,
    /// The model that was asked for or the one that served.
    model: Option<String>,
    /// A tag that the request has.
    tag: Option<String>,
    since: Option<String>,
    /// In place of `since`: the last so many hours, by the store's clock.
    hours: Option<u32>,
    until: Option<String>,
    limit: Option<usize>,
    cursor: Option<String>,
}

pub(super) async fn query(State(state): State<AdminState>, Query(query): Query<LogQuery>) -> JsonResult {
    let now = state.ledger.now_ms().await?;
    let filter = Filter::read(&query, now)?;
    let limit = query.limit.unwrap_or(ROWS_DEFAULT).clamp(1, LOG_ROWS_MAX);
    let start = match &query.cursor {
        Some(text) => {
            Some(LogCursor::read(text, &filter).ok_or_else(|| ApiError::invalid("cursor: not one of weir's"))?)
        }
        None => match &query.account {
            Some(account) => Some(filter.first_of(accounts::existing(&state, account).await?)),
            None => {
                let first = state.ledger.accounts(None, 1).await?.pop();
                first.map(|first| filter.first_of(first))
            }
        },
    };
    let (rows, next) = page(&*state.ledger, &filter, start, query.account.is_some(), limit).await?;
    let rows: Vec<Value> = rows.iter().map(row_body).collect();
    let unknown_model = query.model.as_deref().and_then(|model| unknown_model(&state, model));
    let next = next.map(|place| place.text());
    Ok(Json(
        json!({ "rows": rows, "next": next, "unknown_model": unknown_model }),
    ))
}

/// What to say where no row has a model that the catalogue does not know either.
fn unknown_model(state: &AdminState, model: &str) -> Option<String> {
    let near = state.providers.model_named(model).err()?;
    let hint = near.map_or_else(String::new, |near| format!(": did you mean `{near}`?"));
    Some(format!(
        "no row has the model `{model}`, and there is no such model{hint}"
    ))
}

/// Up to `limit` rows from a place on, and where to go on; `None`: that was all.
async fn page(
    ledger: &dyn LedgerStore,
    filter: &Filter,
    start: Option<LogCursor>,
    one_account: bool,
    limit: usize,
) -> Result<(Vec<Row>, Option<LogCursor>), StoreError> {
    let mut found = Vec::new();
    let Some(mut place) = start else {
        return Ok((found, None));
    };
    let (mut calls, mut empty_days) = (STORE_CALLS_MAX, EMPTY_DAYS_MAX);
    while calls > 0 && empty_days > 0 && found.len() < limit {
        if place.day > filter.last_day() {
            let next = if one_account {
                None
            } else {
                ledger.accounts(Some(&place.account), 1).await?.pop()
            };
            calls -= 1;
            match next {
                Some(account) => place = filter.first_of(account),
                None => return Ok((found, None)),
            }
            continue;
        }
        let rows = ledger
            .rows(&place.account, place.day, place.index, LOG_ROWS_MAX)
            .await?;
        let left = if rows.is_empty() { &mut empty_days } else { &mut calls };
        *left -= 1;
        let day_ends = rows.len() < LOG_ROWS_MAX;
        for row in rows {
            if found.len() == limit {
                return Ok((found, Some(place)));
            }
            place.index += 1;
            if filter.takes(&row) {
                found.push(row);
            }
        }
        if day_ends {
            place.day += 1;
            place.index = 0;
        }
    }
    Ok((found, Some(place)))
}

/// A row as it is shown: its own fields behind its time.
fn row_body(row: &Row) -> Value {
    let mut body = Map::new();
    body.insert("time".to_owned(), time_ms(row.time_ms));
    if let Ok(Value::Object(fields)) = serde_json::to_value(row) {
        body.extend(fields);
    }
    Value::Object(body)
}

/// What is asked for, checked.
struct Filter {
    key: Option<KeyId>,
    model: Option<String>,
    tag: Option<Tag>,
    /// The first moment, in milliseconds since the Unix epoch.
    since_ms: i64,
    /// The first moment that is too late.
    until_ms: i64,
    /// Nobody has said from when on, so an account's days begin with it.
    since_it_was_made: bool,
}

impl Filter {
    fn read(query: &LogQuery, now_ms: i64) -> Result<Self, ApiError> {
        let key = query.key.as_deref().map(KeyId::parse).transpose();
        let tag = query
            .tag
            .as_deref()
            .map(|text| Tag::parse(text).ok_or_else(|| ApiError::invalid(format!("tag: {}", Tag::RULE))));
        let tag = tag.transpose()?;
        let time = |field, text: &Option<String>| text.as_deref().map(|text| fields::moment(field, text)).transpose();
        let hours = query.hours.map(|hours| now_ms - i64::from(hours) * HOUR_MS);
        if query.since.is_some() && hours.is_some() {
            return Err(ApiError::invalid("hours: not beside since"));
        }
        let oldest = now_ms - i64::from(RETENTION_DAYS) * DAY_MS;
        let tomorrow = (now_ms.div_euclid(DAY_MS) + 1) * DAY_MS;
        let (since, until) = (time("since", &query.since)?, time("until", &query.until)?);
        if let (Some(since), Some(until)) = (since, until)
            && since >= until
        {
            return Err(ApiError::invalid("until: it is not after --since, so no row can match"));
        }
        Ok(Self {
            key: key.map_err(|error| ApiError::invalid(error.to_string()))?,
            model: query.model.clone(),
            tag,
            since_ms: since.or(hours).unwrap_or(oldest).max(oldest),
            until_ms: until.unwrap_or(tomorrow).min(tomorrow),
            since_it_was_made: since.is_none() && hours.is_none(),
        })
    }

    fn takes(&self, row: &Row) -> bool {
        (self.since_ms..self.until_ms).contains(&row.time_ms)
            && self.key.as_ref().is_none_or(|key| *key == row.key_id)
            && self.tag.as_ref().is_none_or(|tag| row.tags.contains(tag))
            && self
                .model
                .as_ref()
                .is_none_or(|model| *model == row.model || *model == row.model_asked)
    }

    fn last_day(&self) -> i64 {
        (self.until_ms - 1).div_euclid(DAY_MS)
    }

    /// The same for an account that is at hand: unless somebody asks for them, the days before it was made are not looked at. The
    /// nodes' order of things is not that of time, so the day before its first counts, too.
    fn first_of(&self, account: AccountView) -> LogCursor {
        let mut first = self.first(account.id);
        if self.since_it_was_made {
            let made = account.created_at.saturating_mul(1000).div_euclid(DAY_MS);
            first.day = first.day.max(made - 1);
        }
        first
    }

    /// Where an account's rows begin.
    fn first(&self, account: String) -> LogCursor {
        LogCursor {
            account,
            day: self.since_ms.div_euclid(DAY_MS),
            index: 0,
        }
    }
}

/// A place in the log. New rows come behind those of their day, so it stays valid while rows are written.
#[derive(Clone, Debug, PartialEq, Eq)]
struct LogCursor {
    account: String,
    day: i64,
    index: usize,
}

impl LogCursor {
    fn text(&self) -> String {
        format!("{}.{}.{}", self.day, self.index, self.account)
    }

    fn read(text: &str, filter: &Filter) -> Option<Self> {
        let mut parts = text.splitn(3, '.');
        let (day, index, account) = (parts.next()?, parts.next()?, parts.next()?);
        // Days that have fallen out of the log since the page before need not be asked for.
        let first = filter.first(fields::account("cursor", account).ok()?);
        let (day, index) = (day.parse::<i64>().ok()?, index.parse().ok()?);
        Some(if day < first.day {
            first
        } else {
            Self { day, index, ..first }
        })
    }
}
