//! The audit record in the admin API, a page of it at a time, the newest line first.

use axum::{Json, extract::State};
use serde::Deserialize;
use serde_json::json;

use super::{
    query::Query,
    reply::{AdminError, JsonResult},
    state::Admin,
};

/// Where to read on.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AuditQuery {
    before: Option<u64>,
}

/// `GET /v1/audit`
pub(super) async fn page(State(state): State<Admin>, Query(query): Query<AuditQuery>) -> JsonResult {
    let page = state.audit.page(query.before).await;
    let page = page.map_err(|error| AdminError::failed(error.to_string()))?;
    Ok(Json(json!({ "changes": page.lines, "next": page.next })))
}
