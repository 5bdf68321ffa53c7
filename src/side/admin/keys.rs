//! The life of a key: create, list, show, update, rotate, revoke, delete.

use axum::{
    Extension, Json,
    extract::{Path, Query, State, rejection::JsonRejection},
    http::StatusCode,
};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{
    AdminState, Peer, change,
    reply::{ApiError, key_body},
};
use crate::{
    clock,
    domain::{
        key::{KeyId, KeyRecord, KeyState},
        secret::ServiceKey,
    },
    side::audit::AuditRecord,
    store::KeyView,
};

/// Keys in one answer, unless asked otherwise.
const LIST_DEFAULT: usize = 100;
/// Keys in one answer, at the most.
const LIST_MAX: usize = 1000;

type Body = Result<Json<Map<String, Value>>, JsonRejection>;
type Answer = Result<Json<Value>, ApiError>;

/// Which keys to list.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ListQuery {
    account: Option<String>,
    after: Option<String>,
    limit: Option<usize>,
}

pub(super) async fn create(
    State(state): State<AdminState>,
    Extension(peer): Extension<Peer>,
    body: Body,
) -> Result<(StatusCode, Json<Value>), ApiError> {
    let body = object(body)?;
    let now = clock::unix_seconds();
    let change::Wanted {
        account,
        change: wanted,
    } = change::read(&body, now)?;
    let (Some(name), Some(account)) = (wanted.name, account) else {
        return Err(ApiError::invalid("name and account are needed to create a key"));
    };
    let (key, id) = fresh(&state);
    let record = KeyRecord {
        id,
        name,
        account,
        created_at: now,
        expires_at: wanted.expires_at.flatten(),
        models: wanted.models.flatten(),
        state: KeyState::Active,
        hint: key.hint(),
        revision: 0,
        terms: wanted.terms.unwrap_or_default(),
    };
    audit(&state, peer, "key.create", &record.id, Value::Object(body)).await?;
    state.store.create(&key.digest(), &record).await?;
    let view = KeyView {
        record,
        last_used: None,
    };
    Ok((StatusCode::CREATED, Json(key_body(&view, Some(&key)))))
}

pub(super) async fn list(State(state): State<AdminState>, Query(query): Query<ListQuery>) -> Answer {
    let limit = query.limit.unwrap_or(LIST_DEFAULT).clamp(1, LIST_MAX);
    // Few of many keys may be the account's: look through them in large steps.
    let asked = if query.account.is_some() { LIST_MAX } else { limit };
    let mut after = query.after.as_deref().map(id).transpose()?;
    let mut shown = Vec::new();
    loop {
        let page = state.store.list(after.as_ref(), asked).await?;
        let more = page.len() == asked;
        for view in page {
            after = Some(view.record.id.clone());
            if query
                .account
                .as_ref()
                .is_none_or(|account| *account == view.record.account)
            {
                shown.push(key_body(&view, None));
            }
            if shown.len() == limit {
                return Ok(Json(
                    json!({ "keys": shown, "next": after.as_ref().map(KeyId::as_str) }),
                ));
            }
        }
        if !more {
            return Ok(Json(json!({ "keys": shown, "next": null })));
        }
    }
}

pub(super) async fn show(State(state): State<AdminState>, Path(key_id): Path<String>) -> Answer {
    let view = state.store.by_id(&id(&key_id)?).await?;
    let view = view.ok_or(crate::store::StoreError::NotFound)?;
    Ok(Json(key_body(&view, None)))
}

pub(super) async fn update(
    State(state): State<AdminState>,
    Extension(peer): Extension<Peer>,
    Path(key_id): Path<String>,
    body: Body,
) -> Answer {
    let body = object(body)?;
    let key_id = id(&key_id)?;
    let change::Wanted { account, change } = change::read(&body, clock::unix_seconds())?;
    if account.is_some() {
        return Err(ApiError::invalid(
            "account: a key stays with its account, where its use is counted; create another key there",
        ));
    }
    if body.is_empty() {
        return Err(ApiError::invalid("nothing to change: name at least one field"));
    }
    audit(&state, peer, "key.update", &key_id, Value::Object(body)).await?;
    Ok(Json(key_body(&state.store.update(&key_id, &change).await?, None)))
}

pub(super) async fn rotate(
    State(state): State<AdminState>,
    Extension(peer): Extension<Peer>,
    Path(key_id): Path<String>,
) -> Answer {
    let key_id = id(&key_id)?;
    let (key, _) = fresh(&state);
    audit(&state, peer, "key.rotate", &key_id, json!({ "hint": key.hint() })).await?;
    let view = state.store.rotate(&key_id, &key.digest(), &key.hint()).await?;
    Ok(Json(key_body(&view, Some(&key))))
}

pub(super) async fn revoke(
    State(state): State<AdminState>,
    Extension(peer): Extension<Peer>,
    Path(key_id): Path<String>,
) -> Answer {
    let key_id = id(&key_id)?;
    audit(&state, peer, "key.revoke", &key_id, json!({})).await?;
    Ok(Json(key_body(
        &state.store.revoke(&key_id, clock::unix_seconds()).await?,
        None,
    )))
}

pub(super) async fn delete(
    State(state): State<AdminState>,
    Extension(peer): Extension<Peer>,
    Path(key_id): Path<String>,
) -> Answer {
    let key_id = id(&key_id)?;
    audit(&state, peer, "key.delete", &key_id, json!({})).await?;
    state.store.delete(&key_id).await?;
    Ok(Json(json!({ "id": key_id.as_str(), "deleted": true })))
}

fn fresh(state: &AdminState) -> (ServiceKey, KeyId) {
    let mut random = rand::rng();
    (
        ServiceKey::generate(&state.prefix, &mut random),
        KeyId::generate(&mut random),
    )
}

fn id(text: &str) -> Result<KeyId, ApiError> {
    KeyId::parse(text).map_err(|error| ApiError::invalid(error.to_string()))
}

fn object(body: Body) -> Result<Map<String, Value>, ApiError> {
    match body {
        Ok(Json(fields)) => Ok(fields),
        Err(rejection) => Err(ApiError::invalid(rejection.body_text())),
    }
}

async fn audit(
    state: &AdminState,
    peer: Peer,
    operation: &'static str,
    key_id: &KeyId,
    values: Value,
) -> Result<(), ApiError> {
    let record = AuditRecord {
        time_unix_ms: clock::unix_millis(),
        peer_uid: peer.uid,
        peer_pid: peer.pid,
        operation,
        key_id: key_id.as_str().to_owned(),
        values,
    };
    Ok(state.audit.record(record).await?)
}
