//! The counters that quotas are checked by, beside the daily sums.

use axum::{Extension, Json, extract::State};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    accounts,
    connection_extension::ConnectionExtension,
    query::Query,
    reply::{AdminError, JsonResult},
    state::Admin,
    verify,
};
use crate::{
    domain::ledger::counters::{Basis, CounterDifference},
    sinks::counters,
};

/// An account, and days.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CountersQuery {
    account: String,
    from: String,
    until: String,
}

/// `GET /v1/log/counters`
pub(super) async fn verify(
    State(state): State<Admin>,
    Extension(extension): Extension<ConnectionExtension>,
    Query(query): Query<CountersQuery>,
) -> JsonResult {
    extension.extend();
    let account = accounts::existing(&state, &query.account).await?.id;
    let days = verify::day(&query.from)?..verify::day(&query.until)?;
    let counted = counters::compare(&*state.ledger, state.log(), &account, &days).await;
    let counted = counted.map_err(|error| AdminError::failed(error.to_string()))?;
    let differences: Vec<Value> = counted.differences.iter().map(difference).collect();
    Ok(Json(json!({
        "account": account,
        "compared": counted.compared,
        "moving": counted.moving,
        "older_than_sums": counted.older_than_sums,
        "differences": differences,
    })))
}

fn difference(difference: &CounterDifference) -> Value {
    json!({
        "of": if difference.key.is_some() { "key" } else { "account" },
        "name": difference.key,
        "period": difference.period,
        "counter_usd": difference.counter.to_string(),
        "expected_usd": difference.expected.to_string(),
        "by": match difference.by {
            Basis::Sums => "daily sums",
            Basis::Keys => "counters of its keys",
        },
    })
}
