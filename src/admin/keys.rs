//! Keys in the admin API: create, list, show, update, revoke, delete.

pub(super) mod listing;
pub(super) mod of_person;
pub(super) mod rotation;

use axum::{
    Extension, Json,
    extract::{Path, State},
    http::{StatusCode, header},
    response::IntoResponse,
};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use super::{
    accounts,
    author::{Author, etag},
    change,
    fields::{self, Body, object},
    peer::Peer,
    reply::{AdminError, JsonResult, key_body},
    state::Admin,
};
use crate::{
    domain::{
        keys::{
            change::{ChangedBy, KeyChange, MadeFrom, NotChanged},
            key::{KeyId, KeyRecord, KeyState},
            secret::{KeyDigest, ServiceKey},
        },
        ledger::{KeyTerms, OperationId},
    },
    edges::clock,
    money::account_changes::AccountChangeError,
    store::{KeyView, StoreError},
};

/// The field that names the operation which makes a key: sent again, it makes no other one.
const OPERATION: &str = "operation_id";
/// The limits that the owner of a key can lower.
const LOWERED: [&str; 5] = ["concurrency", "expires_at", "quota_usd", "rpm", "tpm"];

pub(super) async fn create(
    State(state): State<Admin>,
    Extension(peer): Extension<Peer>,
    body: Body,
) -> Result<(StatusCode, Json<Value>), AdminError> {
    let mut body = object(body)?;
    let now = clock::unix_seconds();
    let operation = body.remove(OPERATION);
    let operation = operation.map(|id| fields::operation(OPERATION, &id)).transpose()?;
    let change::Wanted {
        account,
        update: wanted,
    } = change::read(&body, now)?;
    let (Some(name), Some(account)) = (wanted.name, account) else {
        return Err(AdminError::invalid("name and account are needed to create a key"));
    };
    accounts::existing(&state, &account).await?;
    let terms = wanted.terms.apply(KeyTerms::default());
    if terms.lacks_quota() {
        return Err(NotChanged::ResetWithoutQuota.into());
    }
    let (key, drawn) = fresh(&state);
    let id = match &operation {
        None => drawn,
        Some(operation) => new_of(&state, operation).await?,
    };
    body.extend(operation.map(|operation| (OPERATION.to_owned(), json!(operation))));
    let record = KeyRecord {
        id,
        name,
        account: account.into(),
        created_at: now,
        expires_at: wanted.expires_at.flatten(),
        models: models(&state, wanted.models.flatten())?,
        state: KeyState::Active,
        hint: key.hint(),
        revision: 0,
        terms,
        former: None,
    };
    let view = add(&state, peer, key.digest(), record, Value::Object(body)).await?;
    Ok((StatusCode::CREATED, Json(body_of(&state, &view, Some(&key)).await)))
}

/// The id of the key that an operation makes, while it is not made.
async fn new_of(state: &Admin, operation: &OperationId) -> Result<KeyId, AdminError> {
    let id = KeyId::of_digest(&Sha256::digest(operation.as_str()).into());
    match state.store.by_id(&id).await? {
        None => Ok(id),
        Some(_) => Err(AdminError::conflict(format!(
            "this operation has made the key {} already; its text was told to whoever asked first: rotate it for a new one, or delete it",
            id.as_str()
        ))),
    }
}

/// Makes a key, recorded with what was asked for.
async fn add(
    state: &Admin,
    peer: Peer,
    digest: KeyDigest,
    record: KeyRecord,
    values: Value,
) -> Result<KeyView, AdminError> {
    state.audit(peer, "key.create", record.id.as_str(), &values).await?;
    state.store.create(&digest, &record).await?;
    if let Err(error) = state.changes.key_changed(&digest, &record).await {
        // Nobody has seen it yet. Where this fails too, a key stays that nobody has.
        let _ = state.store.delete(&record.id, &MadeFrom::Anything).await;
        return Err(error.into());
    }
    Ok(KeyView {
        digest,
        record,
        last_used: None,
    })
}

/// A key with what it has spent; a store that does not tell leaves that out.
async fn body_of(state: &Admin, view: &KeyView, fresh: Option<&ServiceKey>) -> Value {
    let spend = state.ledger.key_spend(&view.record.account, &view.record.id).await;
    key_body(view, spend.ok().as_ref(), clock::unix_millis(), fresh)
}

/// Makes a change, recorded with these values, and shows the key after it, with a text that was made just now. What the key as it
/// is refuses is not recorded.
async fn make(
    state: &Admin,
    author: Author,
    key_id: &KeyId,
    change: &KeyChange,
    (operation, values, fresh): (&'static str, Value, Option<&ServiceKey>),
) -> JsonResult {
    existing(state, key_id).await?.after(change, &author.from)?;
    state.audit(author.peer, operation, key_id.as_str(), &values).await?;
    let view = state.store.change(key_id, change, &author.from).await?;
    let noted = state.changes.key_changed(&view.digest, &view.record).await;
    noted.map_err(|error| unsure(&error))?;
    Ok(Json(body_of(state, &view, fresh).await))
}

/// The store has made the change, and might yet lose it.
fn unsure(error: &AccountChangeError) -> AdminError {
    AdminError::failed(format!(
        "the key was changed, but a failover of the store could undo it: {error}; then do it again"
    ))
}

async fn existing(state: &Admin, id: &KeyId) -> Result<KeyView, StoreError> {
    state.store.by_id(id).await?.ok_or(StoreError::NotFound)
}

pub(super) async fn show(
    State(state): State<Admin>,
    Path(key_id): Path<String>,
) -> Result<impl IntoResponse, AdminError> {
    let view = existing(&state, &id(&key_id)?).await?;
    let body = body_of(&state, &view, None).await;
    Ok(([(header::ETAG, etag(view.version()))], Json(body)))
}

pub(super) async fn update(
    State(state): State<Admin>,
    author: Author,
    Path(key_id): Path<String>,
    body: Body,
) -> JsonResult {
    let body = object(body)?;
    set(&state, author, &key_id, body, ("key.update", ChangedBy::Operator)).await
}

/// What the owner of a key may do, who can never raise a limit.
pub(super) async fn lower(
    State(state): State<Admin>,
    author: Author,
    Path(key_id): Path<String>,
    body: Body,
) -> JsonResult {
    let body = object(body)?;
    fields::check_known(&body, &LOWERED)?;
    set(&state, author, &key_id, body, ("key.lower", ChangedBy::Owner)).await
}

/// Sets what the body names.
async fn set(
    state: &Admin,
    author: Author,
    key_id: &str,
    body: Map<String, Value>,
    (operation, by): (&'static str, ChangedBy),
) -> JsonResult {
    let key_id = id(key_id)?;
    let change::Wanted { account, mut update } = change::read(&body, clock::unix_seconds())?;
    if account.is_some() {
        return Err(AdminError::invalid(
            "account: a key stays with its account, where its use is counted; create another key there",
        ));
    }
    if body.is_empty() {
        return Err(AdminError::invalid("nothing to change: name at least one field"));
    }
    if let Some(names) = update.models {
        update.models = Some(models(state, names)?);
    }
    let change = KeyChange::Update { update, by };
    make(state, author, &key_id, &change, (operation, Value::Object(body), None)).await
}

pub(super) async fn revoke(State(state): State<Admin>, author: Author, Path(key_id): Path<String>) -> JsonResult {
    let at = clock::unix_seconds();
    let change = KeyChange::Revoke { at };
    make(&state, author, &id(&key_id)?, &change, ("key.revoke", json!({}), None)).await
}

pub(super) async fn delete(State(state): State<Admin>, author: Author, Path(key_id): Path<String>) -> JsonResult {
    let key_id = id(&key_id)?;
    if let Some(view) = state.store.by_id(&key_id).await? {
        view.check_made_from(&author.from)?;
    }
    state
        .audit(author.peer, "key.delete", key_id.as_str(), &json!({}))
        .await?;
    if let Some(view) = state.store.delete(&key_id, &author.from).await? {
        let gone = state.changes.key_gone(&key_id, view.record.revision).await;
        gone.map_err(|error| unsure(&error))?;
    }
    Ok(Json(json!({ "id": key_id.as_str(), "deleted": true })))
}

/// Models by the names they are allowed by: a mistyped one would allow nothing, and an alias is none of those.
fn models(state: &Admin, names: Option<Vec<String>>) -> Result<Option<Vec<String>>, AdminError> {
    let known = |name: String| {
        state.providers.model_named(&name).map_err(|near| {
            let hint = near.map_or_else(
                || "`weir models` lists those that are served".to_owned(),
                |near| format!("did you mean `{near}`?"),
            );
            AdminError::invalid(format!("models: there is no model `{name}`: {hint}"))
        })
    };
    names
        .map(|names| names.into_iter().map(known).collect::<Result<_, _>>())
        .transpose()
}

fn fresh(state: &Admin) -> (ServiceKey, KeyId) {
    let mut random = rand::rng();
    (
        ServiceKey::generate(&state.prefix, &mut random),
        KeyId::generate(&mut random),
    )
}

fn id(text: &str) -> Result<KeyId, AdminError> {
    KeyId::parse(text).map_err(|error| AdminError::invalid(error.to_string()))
}
