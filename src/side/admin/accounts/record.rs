//! The record of an account, its limits and its state, as the admin API changes it: only one that was made from the present record
//! takes its place.

use axum::Json;
use serde_json::{Map, Value, json};

use crate::{
    domain::{
        ledger::{AccountRecord, AccountView},
        version::Version,
    },
    money::account_changes::{AccountChangeError, Submitted},
    side::admin::{
        fields,
        peer::Peer,
        reply::{ApiError, JsonResult, account_body},
        state::AdminState,
    },
    store::{StoreError, ledger::RECORD_CONFLICTS_MAX},
};

/// An account that is there: a mistyped name must not make one.
pub(in crate::side::admin) async fn existing(state: &AdminState, id: &str) -> Result<AccountView, ApiError> {
    let id = fields::account("account", id)?;
    let missing = || {
        ApiError::not_found(format!(
            "there is no account `{id}`: `weir account list` shows those there are, `weir account create --id {id}` makes it"
        ))
    };
    state.ledger.account(&id).await?.ok_or_else(missing)
}

/// Has an account's record become what `decide` makes of it, if it still has the version that is named, or none is.
pub(super) async fn change_record(
    state: &AdminState,
    peer: Peer,
    (id, condition): (&str, Option<Version>),
    operation: &'static str,
    values: Map<String, Value>,
    decide: impl Fn(&AccountRecord) -> AccountRecord + Send,
) -> JsonResult {
    let _turn = state.changing.lock().await;
    let from = existing(state, id).await?.record;
    has_version(id, condition, &from, &decide(&from))?;
    audit(state, peer, id, operation, values).await?;
    put_record(state, (id, condition), from, decide).await?;
    Ok(Json(changed(state, id, Submitted::Applied).await))
}

/// Puts what `decide` makes of an account's record in its place, and decides again where another node has changed it meanwhile:
/// so only what a change names is changed. Then writes it into the journal, also where it stood so already: whoever does that
/// again may be unsure of the journal.
pub(super) async fn put_record(
    state: &AdminState,
    (id, condition): (&str, Option<Version>),
    mut from: AccountRecord,
    decide: impl Fn(&AccountRecord) -> AccountRecord + Send,
) -> Result<(), ApiError> {
    for _ in 0..RECORD_CONFLICTS_MAX {
        let to = decide(&from);
        has_version(id, condition, &from, &to)?;
        if state.ledger.set_terms(id, &from, &to).await? {
            let noted = state.changes.account_changed(id, &to).await;
            return noted.map_err(|error| unsure(&error));
        }
        from = existing(state, id).await?.record;
    }
    Err(StoreError::Busy(format!("account `{id}` is changed again and again")).into())
}

/// Refuses a change of another version than the present one. What is so already is no change.
fn has_version(id: &str, condition: Option<Version>, from: &AccountRecord, to: &AccountRecord) -> Result<(), ApiError> {
    let present = from.version();
    match condition.filter(|version| *version != present && to != from) {
        None => Ok(()),
        Some(version) => Err(ApiError::changed(
            format!(
                "account `{id}` has changed since version {version} and is at {present}: nothing was changed; `weir account show \
                 {id}` shows it"
            ),
            present,
        )),
    }
}

/// The store has made the change, and might yet lose it.
fn unsure(error: &AccountChangeError) -> ApiError {
    ApiError::failed(format!(
        "the account was changed, but a failover of the store could undo it: {error}; then do it again"
    ))
}

/// Records a change in the audit record, before it is made.
pub(super) async fn audit(
    state: &AdminState,
    peer: Peer,
    id: &str,
    operation: &'static str,
    mut values: Map<String, Value>,
) -> Result<(), ApiError> {
    values.insert("account".to_owned(), json!(id));
    Ok(state.audit(peer, operation, "", Value::Object(values)).await?)
}

/// The account after a change. Without an answer of the store only that the change is recorded.
pub(super) async fn changed(state: &AdminState, id: &str, submitted: Submitted) -> Value {
    let mut body = match (submitted, state.ledger.account(id).await) {
        (Submitted::Applied, Ok(Some(account))) => account_body(&account),
        _ => [("id".to_owned(), json!(id))].into_iter().collect(),
    };
    body.insert("applied".to_owned(), json!(submitted == Submitted::Applied));
    Value::Object(body)
}
