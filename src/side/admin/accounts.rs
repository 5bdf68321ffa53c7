//! The life of an account: made, credited, corrected, limited, suspended. Amounts, state and limits each have an operation of
//! their own, and each is a step in the journal.

use axum::{
    Extension, Json,
    extract::{Path, Query, State},
    http::StatusCode,
};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{
    AdminState, Peer,
    fields::{self, Body},
    reply::{ApiError, account_body},
};
use crate::{
    account_changes::Submitted,
    clock,
    domain::{
        ledger::{AccountTerms, AccountTermsChange, AccountView, Change, ProviderState},
        money::NanoUsd,
    },
    store::ledger::LIST_ACCOUNTS_MAX,
};

/// Accounts in one answer, unless asked otherwise.
const LIST_DEFAULT: usize = 100;
const REASON_CHARS_MAX: usize = 256;
/// The fields that a new account can be given.
const CREATE_FIELDS: [&str; 7] = [
    "balance_usd",
    "concurrency",
    "id",
    "low_balance_usd",
    "provider_state",
    "rpm",
    "tpm",
];
/// The fields that can be changed.
const UPDATE_FIELDS: [&str; 5] = ["concurrency", "low_balance_usd", "provider_state", "rpm", "tpm"];

type Answer = Result<Json<Value>, ApiError>;

/// Which accounts to list.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ListQuery {
    after: Option<String>,
    limit: Option<usize>,
}

pub(super) async fn create(
    State(state): State<AdminState>,
    Extension(peer): Extension<Peer>,
    body: Body,
) -> Result<(StatusCode, Json<Value>), ApiError> {
    let body = fields::object(body)?;
    let (mut id, mut balance, mut limits) = (None, NanoUsd::ZERO, AccountTermsChange::default());
    for (field, value) in &body {
        match field.as_str() {
            "id" => id = Some(fields::account(field, value.as_str().unwrap_or_default())?),
            "balance_usd" => balance = fields::usd(field, value)?,
            other if limit(&mut limits, other, value)? => {}
            other => return Err(fields::unknown(other, &CREATE_FIELDS)),
        }
    }
    let id = id.ok_or_else(|| ApiError::invalid("id is needed to create an account"))?;
    if balance < NanoUsd::ZERO {
        return Err(ApiError::invalid("balance_usd: an account begins with zero or more"));
    }
    let _turn = state.changing.lock().await;
    if state.ledger.account(&id).await?.is_some() {
        return Err(ApiError::conflict(format!(
            "there is an account `{id}` already; `weir account credit --id {id}` adds to its balance"
        )));
    }
    state.audit(peer, "account.create", "", Value::Object(body)).await?;
    let open = Change::Open {
        balance,
        at: clock::unix_seconds(),
    };
    let mut submitted = state.changes.submit(&id, open).await?;
    let terms = limits.apply(AccountTerms::default());
    if terms != AccountTerms::default() {
        submitted = state.changes.submit(&id, Change::SetTerms { terms }).await?;
    }
    Ok((StatusCode::CREATED, Json(changed(&state, &id, submitted).await)))
}

pub(super) async fn list(State(state): State<AdminState>, Query(query): Query<ListQuery>) -> Answer {
    let limit = query.limit.unwrap_or(LIST_DEFAULT).clamp(1, LIST_ACCOUNTS_MAX);
    let page = state.ledger.accounts(query.after.as_deref(), limit).await?;
    let next = page
        .last()
        .filter(|_| page.len() == limit)
        .map(|account| account.id.clone());
    let accounts: Vec<Map<String, Value>> = page.iter().map(account_body).collect();
    Ok(Json(json!({ "accounts": accounts, "next": next })))
}

pub(super) async fn show(State(state): State<AdminState>, Path(id): Path<String>) -> Answer {
    Ok(Json(Value::Object(account_body(&existing(&state, &id).await?))))
}

pub(super) async fn update(
    State(state): State<AdminState>,
    Extension(peer): Extension<Peer>,
    Path(id): Path<String>,
    body: Body,
) -> Answer {
    let body = fields::object(body)?;
    let mut limits = AccountTermsChange::default();
    for (field, value) in &body {
        if !limit(&mut limits, field, value)? {
            return Err(fields::unknown(field, &UPDATE_FIELDS));
        }
    }
    if body.is_empty() {
        return Err(ApiError::invalid("nothing to change: name at least one field"));
    }
    change(&state, peer, &id, "account.update", body, |account| {
        Ok(Change::SetTerms {
            terms: limits.apply(account.terms),
        })
    })
    .await
}

pub(super) async fn credit(
    State(state): State<AdminState>,
    Extension(peer): Extension<Peer>,
    Path(id): Path<String>,
    body: Body,
) -> Answer {
    let body = fields::object(body)?;
    let amount = amount(&body, &["usd"])?;
    if amount <= NanoUsd::ZERO {
        return Err(ApiError::invalid(
            "usd: a credit is more than zero; `weir account adjust` takes money away",
        ));
    }
    change(&state, peer, &id, "account.credit", body, |account| {
        stays_countable(account, amount).map(|()| Change::Credit { amount })
    })
    .await
}

pub(super) async fn adjust(
    State(state): State<AdminState>,
    Extension(peer): Extension<Peer>,
    Path(id): Path<String>,
    body: Body,
) -> Answer {
    let body = fields::object(body)?;
    let amount = amount(&body, &["reason", "usd"])?;
    fields::line("reason", body.get("reason").unwrap_or(&Value::Null), REASON_CHARS_MAX)?;
    if amount == NanoUsd::ZERO {
        return Err(ApiError::invalid("usd: an adjustment is more or less than zero"));
    }
    change(&state, peer, &id, "account.adjust", body, |account| {
        stays_countable(account, amount).map(|()| Change::Adjust { amount })
    })
    .await
}

pub(super) async fn suspend(
    State(state): State<AdminState>,
    Extension(peer): Extension<Peer>,
    Path(id): Path<String>,
) -> Answer {
    change(&state, peer, &id, "account.suspend", Map::new(), |_| {
        Ok(Change::Suspend)
    })
    .await
}

pub(super) async fn resume(
    State(state): State<AdminState>,
    Extension(peer): Extension<Peer>,
    Path(id): Path<String>,
) -> Answer {
    change(&state, peer, &id, "account.resume", Map::new(), |_| Ok(Change::Resume)).await
}

/// An account that is there: a mistyped name must not make one.
pub(super) async fn existing(state: &AdminState, id: &str) -> Result<AccountView, ApiError> {
    let id = fields::account("account", id)?;
    let missing = || {
        ApiError::not_found(format!(
            "there is no account `{id}`: `weir account list` shows those there are, `weir account create --id {id}` makes it"
        ))
    };
    state.ledger.account(&id).await?.ok_or_else(missing)
}

/// Records and submits one change of an account, decided on the account as it is. One at a time, so that of two operators who
/// change different limits neither undoes the other's.
async fn change(
    state: &AdminState,
    peer: Peer,
    id: &str,
    operation: &'static str,
    mut values: Map<String, Value>,
    decide: impl FnOnce(&AccountView) -> Result<Change, ApiError> + Send,
) -> Answer {
    let _turn = state.changing.lock().await;
    let change = decide(&existing(state, id).await?)?;
    values.insert("account".to_owned(), json!(id));
    state.audit(peer, operation, "", Value::Object(values)).await?;
    let submitted = state.changes.submit(id, change).await?;
    Ok(Json(changed(state, id, submitted).await))
}

/// The account after a change. Without an answer of the store only that the change is recorded.
async fn changed(state: &AdminState, id: &str, submitted: Submitted) -> Value {
    let mut body = match (submitted, state.ledger.account(id).await) {
        (Submitted::Applied, Ok(Some(account))) => account_body(&account),
        _ => [("id".to_owned(), json!(id))].into_iter().collect(),
    };
    body.insert("applied".to_owned(), json!(submitted == Submitted::Applied));
    Value::Object(body)
}

/// Sets one limit; false if the field is none.
fn limit(limits: &mut AccountTermsChange, field: &str, value: &Value) -> Result<bool, ApiError> {
    match field {
        "low_balance_usd" => {
            limits.low_balance = Some(match value {
                Value::Null => None,
                amount => Some(fields::usd(field, amount)?),
            });
        }
        "provider_state" => {
            let state = value.as_str().unwrap_or_default().parse::<ProviderState>();
            let wanted = |_| ApiError::invalid("provider_state: `own` or `any`");
            limits.provider_state = Some(state.map_err(wanted)?);
        }
        _ => return fields::rate(&mut limits.rates, field, value),
    }
    Ok(true)
}

/// The field `usd` of a body that has these fields and no others.
fn amount(body: &Map<String, Value>, known: &[&str]) -> Result<NanoUsd, ApiError> {
    if let Some(other) = body.keys().find(|field| !known.contains(&field.as_str())) {
        return Err(fields::unknown(other, known));
    }
    fields::usd("usd", body.get("usd").unwrap_or(&Value::Null))
}

/// Whether the balance can be counted exactly after the change.
fn stays_countable(account: &AccountView, amount: NanoUsd) -> Result<(), ApiError> {
    let after = account.balance.saturating_add(amount);
    if after.nanos().unsigned_abs() > NanoUsd::MAX.nanos().unsigned_abs() {
        return Err(ApiError::invalid(format!(
            "usd: the balance is {} USD, and a balance is at most {} USD",
            account.balance,
            NanoUsd::MAX
        )));
    }
    Ok(())
}
