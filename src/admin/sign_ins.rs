//! Agents that sign in with a key, in the admin API: a person decides on one, or ends all.

use axum::{
    Extension, Json,
    extract::{Path, State},
};
use serde_json::json;

use super::{
    fields::{self, Body, object},
    peer::Peer,
    reply::{AdminError, JsonResult, time},
    state::Admin,
};
use crate::{
    domain::{keys::key::KeyId, sign_in::user_code::UserCode},
    edges::clock,
    sign_in::AgentSignIns,
    store::{KeyView, StoreError},
};

const FIELDS: [&str; 2] = ["approve", "user_code"];

/// `POST /v1/keys/{id}/sign-ins`: lets the agent that has shown this code use the key, or refuses it.
pub(super) async fn decide(
    State(state): State<Admin>,
    Extension(peer): Extension<Peer>,
    Path(key_id): Path<String>,
    body: Body,
) -> JsonResult {
    let body = object(body)?;
    fields::check_known(&body, &FIELDS)?;
    let code = body.get("user_code").and_then(|code| UserCode::parse(code.as_str()?));
    let approve = body.get("approve").and_then(serde_json::Value::as_bool);
    let (Some(code), Some(approve)) = (code, approve) else {
        return Err(AdminError::invalid(
            "user_code: the eight letters that the agent shows; approve: true or false",
        ));
    };
    let sign_ins = on(&state)?;
    let view = working(&state, &key_id).await?;
    if sign_ins.waiting(&code).await?.is_none() {
        return Err(not_waiting());
    }
    // The code is good for minutes and for nothing else, so it may be in the record.
    let values = json!({ "user_code": code.to_string(), "approve": approve });
    state
        .audit(peer, "key.sign_in", view.record.id.as_str(), &values)
        .await?;
    if !sign_ins.decide(&code, &view, approve).await? {
        return Err(not_waiting());
    }
    Ok(Json(json!({ "id": view.record.id.as_str(), "approved": approve })))
}

/// `GET /v1/keys/{id}/sign-ins`: the agents that are signed in with a key.
pub(super) async fn list(State(state): State<Admin>, Path(key_id): Path<String>) -> JsonResult {
    let sign_ins = on(&state)?;
    let view = state.store.by_id(&id(&key_id)?).await?.ok_or(StoreError::NotFound)?;
    let lasting = sign_ins.lasting(&view.record.id).await?;
    let told = lasting
        .iter()
        .map(|(used, ends)| json!({ "used_at": time(*used), "ends_at": time(*ends) }));
    let told: Vec<_> = told.collect();
    Ok(Json(
        json!({ "id": view.record.id.as_str(), "signed_in": told.len(), "sign_ins": told }),
    ))
}

/// `DELETE /v1/keys/{id}/sign-ins`: ends all sign-ins of a key.
pub(super) async fn end(
    State(state): State<Admin>,
    Extension(peer): Extension<Peer>,
    Path(key_id): Path<String>,
) -> JsonResult {
    let sign_ins = on(&state)?;
    let key_id = id(&key_id)?;
    state.audit(peer, "key.sign_out", key_id.as_str(), &json!({})).await?;
    sign_ins.end_all(&key_id).await?;
    Ok(Json(json!({ "id": key_id.as_str(), "signed_in": 0 })))
}

fn on(state: &Admin) -> Result<&AgentSignIns, AdminError> {
    state.sign_ins.as_deref().ok_or_else(|| {
        AdminError::not_found(
            "agents cannot sign in here: set `enabled` of [sign_in] in the configuration and start weir anew",
        )
    })
}

async fn working(state: &Admin, key_id: &str) -> Result<KeyView, AdminError> {
    let view = state.store.by_id(&id(key_id)?).await?.ok_or(StoreError::NotFound)?;
    let works = view.record.check(&view.digest, clock::unix_seconds());
    works.map_err(|denied| AdminError::invalid(format!("{denied}: nobody can sign in with it")))?;
    Ok(view)
}

fn id(text: &str) -> Result<KeyId, AdminError> {
    KeyId::parse(text).map_err(|error| AdminError::invalid(error.to_string()))
}

fn not_waiting() -> AdminError {
    AdminError::not_found(
        "no sign-in with this code waits for approval: it has expired, was decided, or was mistyped; let the agent begin anew",
    )
}
