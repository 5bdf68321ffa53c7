//! The log's home beside the store: compares it with the daily sums, and brings to it what it lacks.

use axum::{Extension, Json, extract::State};
use serde_json::{Value, json};

use super::{
    accounts,
    connection_extension::ConnectionExtension,
    fields::{self, Body},
    home::LogHome,
    peer::Peer,
    query::Query,
    reply::{AdminError, JsonResult},
    state::Admin,
    verify::{self, DAY_MS, VerifyQuery},
};
use crate::{
    domain::ledger::{
        consumption::RETENTION_DAYS,
        daily_sums::{DailySums, DayTags, Subject, differences},
        usage_report,
    },
    sinks::{
        comparison::{self, ROWS_AT_ONCE, Source},
        fill,
    },
};

/// `GET /v1/log/home`: its name, that of the home before it, and the days that rows are kept of.
pub(super) async fn about(State(state): State<Admin>) -> JsonResult {
    let today = state.ledger.now_ms().await?.div_euclid(DAY_MS);
    let date = |day: i64| usage_report::date(day).to_string();
    Ok(Json(json!({
        "home": state.homes.home.map(|home| home.home.name()),
        "former": state.homes.former.map(|former| former.name()),
        "from": date(today - i64::from(RETENTION_DAYS)),
        "until": date(today + 1),
    })))
}

/// `GET /v1/log/home/verify`
pub(super) async fn verify(
    State(state): State<Admin>,
    Extension(extension): Extension<ConnectionExtension>,
    Query(query): Query<VerifyQuery>,
) -> JsonResult {
    extension.extend();
    let (home, account, day) = asked(&state, &query.account, &query.day).await?;
    let complete = is_complete(&state, &home, day).await?;
    let kept: DailySums = verify::kept(&*state.ledger, &account, day).await?.into_iter().collect();
    let of_account = kept.iter().filter(|sum| sum.subject == Subject::Account);
    let expected = of_account.map(|sum| sum.sums.requests).sum();
    let (mut of_rows, mut tags) = (DailySums::default(), DayTags::default());
    let present = comparison::count(&*home.home, (&account, day), (expected, ROWS_AT_ONCE), |row| {
        of_rows.add(row, &mut tags);
    });
    let present = present.await.map_err(|error| AdminError::failed(error.to_string()))?;
    let differences = differences(&kept, &of_rows);
    let differences: Vec<Value> = differences.iter().map(verify::difference_body).collect();
    Ok(Json(json!({
        "account": account,
        "day": query.day,
        "home": home.home.name(),
        "complete": complete,
        "rows": present.rows,
        "again": present.again,
        "differences": differences,
    })))
}

/// `POST /v1/log/home/fill`
pub(super) async fn fill(
    State(state): State<Admin>,
    Extension(peer): Extension<Peer>,
    Extension(extension): Extension<ConnectionExtension>,
    body: Body,
) -> JsonResult {
    extension.extend();
    let body = fields::object(body)?;
    let text = |name: &str| body.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (account, date) = (text("account"), text("day"));
    if let Some(other) = body.keys().find(|name| !["account", "day"].contains(&name.as_str())) {
        return Err(fields::unknown(other, &["account", "day"]));
    }
    let (home, account, day) = asked(&state, &account, &date).await?;
    state.audit(peer, "log.fill", "", &Value::Object(body)).await?;
    let _turn = home.filling.lock().await;
    let before_ms = home.figures.complete_before(state.ledger.now_ms().await?);
    let sources = [Source::Store(&*state.ledger)].into_iter();
    let mut rows = 0;
    for source in sources.chain(state.homes.former.as_deref().map(Source::Home)) {
        let filled = fill::fill(&*home.home, source, (&account, day), before_ms).await;
        rows += filled.map_err(|error| AdminError::failed(error.to_string()))?;
    }
    Ok(Json(
        json!({ "account": account, "day": date, "home": home.home.name(), "rows": rows }),
    ))
}

/// The log's home, if it has another one than the store.
pub(super) fn home(state: &Admin) -> Result<LogHome, AdminError> {
    state.homes.home.clone().ok_or_else(|| {
        AdminError::invalid("the log has no other home than the store; name one in `[log] home` and start weir anew")
    })
}

async fn asked(state: &Admin, account: &str, day: &str) -> Result<(LogHome, String, i64), AdminError> {
    let home = home(state)?;
    let account = accounts::existing(state, account).await?.id;
    Ok((home, account, verify::day(day)?))
}

/// Whether the home has all rows of the day that this process knows of.
async fn is_complete(state: &Admin, home: &LogHome, day: i64) -> Result<bool, AdminError> {
    let end_ms = day.saturating_add(1).saturating_mul(DAY_MS);
    Ok(home.figures.complete_before(state.ledger.now_ms().await?) >= end_ms)
}
