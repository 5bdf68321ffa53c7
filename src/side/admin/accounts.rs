//! Accounts in the admin API: create, list, show, credit, adjust. What is added to a balance is a step in the journal; limits and
//! state are the account's record.

mod record;

use axum::{
    Extension, Json,
    extract::{Path, State},
    http::{HeaderMap, StatusCode, header},
    response::IntoResponse,
};
use serde::Deserialize;
use serde_json::{Map, Value, json};

pub(super) use self::record::existing;
use self::record::{audit, change_record, changed, put_record};
use super::{
    author,
    fields::{self, Body},
    peer::Peer,
    query::Query,
    reply::{ApiError, JsonResult, account_body},
    state::AdminState,
};
use crate::{
    domain::{
        ledger::{AccountRecord, AccountTermsChange, AccountView, Change, OperationId, ProviderState},
        money::NanoUsd,
    },
    money::account_changes::Submitted,
    store::ledger::LIST_ACCOUNTS_MAX,
};

/// Accounts in one answer, unless asked otherwise.
const LIST_DEFAULT: usize = 100;
const REASON_CHARS_MAX: usize = 256;
/// The fields that a new account can be given.
const CREATE_FIELDS: [&str; 9] = [
    "balance_usd",
    "concurrency",
    "id",
    "low_balance_usd",
    "notify_percent",
    "operation_id",
    "provider_state",
    "rpm",
    "tpm",
];
/// The fields that can be changed.
const UPDATE_FIELDS: [&str; 6] = [
    "concurrency",
    "low_balance_usd",
    "notify_percent",
    "provider_state",
    "rpm",
    "tpm",
];

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
    let mut operation = None;
    for (field, value) in &body {
        match field.as_str() {
            "id" => id = Some(fields::account(field, value.as_str().unwrap_or_default())?),
            "balance_usd" => balance = fields::usd(field, value)?,
            "operation_id" => operation = Some(fields::operation(field, value)?),
            other if limit(&mut limits, other, value)? => {}
            other => return Err(fields::unknown(other, &CREATE_FIELDS)),
        }
    }
    let id = id.ok_or_else(|| ApiError::invalid("id is needed to create an account"))?;
    if balance < NanoUsd::ZERO {
        return Err(ApiError::invalid("balance_usd: an account begins with zero or more"));
    }
    let with_limits = |record: &AccountRecord| record.with(limits.apply(record.terms), record.suspended);
    let _turn = state.changing.lock().await;
    let mut submitted = Submitted::Applied;
    let mut from = AccountRecord::default();
    if let Some(account) = state.ledger.account(&id).await? {
        // The same call again: its answer was lost, and maybe what came behind the account.
        let is_same = match &operation {
            Some(operation) => state.ledger.operation(&id, operation).await? == Some(balance),
            None => false,
        };
        if !is_same {
            return Err(ApiError::conflict(format!(
                "there is an account `{id}` already; `weir account credit --id {id}` adds to its balance"
            )));
        }
        from = account.record;
    } else {
        state.audit(peer, "account.create", "", Value::Object(body)).await?;
        let at = state.ledger.now_ms().await?.div_euclid(1000);
        let open = Change::Open { balance, at, operation };
        submitted = state.changes.submit(&id, open).await?;
    }
    // Also where they are set already: they may not be in the journal yet.
    let is_unset = from.revision == 0 || with_limits(&from) == from;
    let none = AccountRecord::default();
    if is_unset && with_limits(&none) != none {
        let set = put_record(&state, (&id, None), from, with_limits).await;
        set.map_err(|error| error.behind("the account is made, its limits may not be set"))?;
    }
    Ok((StatusCode::CREATED, Json(changed(&state, &id, submitted).await)))
}

pub(super) async fn list(State(state): State<AdminState>, Query(query): Query<ListQuery>) -> JsonResult {
    let limit = query.limit.unwrap_or(LIST_DEFAULT).clamp(1, LIST_ACCOUNTS_MAX);
    let page = state.ledger.accounts(query.after.as_deref(), limit).await?;
    let next = page
        .last()
        .filter(|_| page.len() == limit)
        .map(|account| account.id.clone());
    let accounts: Vec<Map<String, Value>> = page.iter().map(account_body).collect();
    Ok(Json(json!({ "accounts": accounts, "next": next })))
}

pub(super) async fn show(
    State(state): State<AdminState>,
    Path(id): Path<String>,
) -> Result<impl IntoResponse, ApiError> {
    let account = existing(&state, &id).await?;
    let tag = author::etag(account.record.version());
    Ok(([(header::ETAG, tag)], Json(Value::Object(account_body(&account)))))
}

pub(super) async fn update(
    State(state): State<AdminState>,
    Extension(peer): Extension<Peer>,
    Path(id): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> JsonResult {
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
    let condition = fields::condition(&headers)?;
    change_record(&state, peer, (&id, condition), "account.update", body, |record| {
        record.with(limits.apply(record.terms), record.suspended)
    })
    .await
}

pub(super) async fn credit(
    State(state): State<AdminState>,
    Extension(peer): Extension<Peer>,
    Path(id): Path<String>,
    body: Body,
) -> JsonResult {
    let body = fields::object(body)?;
    let money = BalanceChange::read(&body, &["operation_id", "usd"])?;
    if money.amount <= NanoUsd::ZERO {
        return Err(ApiError::invalid(
            "usd: a credit is more than zero; `weir account adjust` takes money away",
        ));
    }
    let credit = |amount, at, operation| Change::Credit { amount, at, operation };
    add(&state, peer, &id, "account.credit", body, money, credit).await
}

pub(super) async fn adjust(
    State(state): State<AdminState>,
    Extension(peer): Extension<Peer>,
    Path(id): Path<String>,
    body: Body,
) -> JsonResult {
    let body = fields::object(body)?;
    let money = BalanceChange::read(&body, &["operation_id", "reason", "usd"])?;
    fields::line("reason", body.get("reason").unwrap_or(&Value::Null), REASON_CHARS_MAX)?;
    if money.amount == NanoUsd::ZERO {
        return Err(ApiError::invalid("usd: an adjustment is more or less than zero"));
    }
    let adjust = |amount, at, operation| Change::Adjust { amount, at, operation };
    add(&state, peer, &id, "account.adjust", body, money, adjust).await
}

pub(super) async fn suspend(
    State(state): State<AdminState>,
    Extension(peer): Extension<Peer>,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> JsonResult {
    let condition = fields::condition(&headers)?;
    change_record(
        &state,
        peer,
        (&id, condition),
        "account.suspend",
        Map::new(),
        |record| record.with(record.terms, true),
    )
    .await
}

pub(super) async fn resume(
    State(state): State<AdminState>,
    Extension(peer): Extension<Peer>,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> JsonResult {
    let condition = fields::condition(&headers)?;
    change_record(&state, peer, (&id, condition), "account.resume", Map::new(), |record| {
        record.with(record.terms, false)
    })
    .await
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
        "notify_percent" => limits.notify = Some(fields::thresholds(field, value)?),
        "provider_state" => {
            let state = value.as_str().unwrap_or_default().parse::<ProviderState>();
            let wanted = |_| ApiError::invalid("provider_state: `own` or `any`");
            limits.provider_state = Some(state.map_err(wanted)?);
        }
        _ => return fields::rate(&mut limits.rates, field, value),
    }
    Ok(true)
}

/// What is to be added to a balance.
struct BalanceChange {
    amount: NanoUsd,
    /// By what it is counted once, if the caller wants that.
    operation: Option<OperationId>,
}

impl BalanceChange {
    /// The fields `usd` and `operation_id` of a body that has these fields and no others.
    fn read(body: &Map<String, Value>, known: &[&str]) -> Result<Self, ApiError> {
        if let Some(other) = body.keys().find(|field| !known.contains(&field.as_str())) {
            return Err(fields::unknown(other, known));
        }
        let operation = body.get("operation_id");
        Ok(Self {
            amount: fields::usd("usd", body.get("usd").unwrap_or(&Value::Null))?,
            operation: operation
                .map(|value| fields::operation("operation_id", value))
                .transpose()?,
        })
    }
}

/// Adds to a balance, once for an operation that the account remembers. The same again is answered as the first time was, and
/// is no change; another amount is refused.
async fn add(
    state: &AdminState,
    peer: Peer,
    id: &str,
    name: &'static str,
    values: Map<String, Value>,
    money: BalanceChange,
    make: impl FnOnce(NanoUsd, i64, Option<OperationId>) -> Change + Send,
) -> JsonResult {
    let BalanceChange { amount, operation } = money;
    let _turn = state.changing.lock().await;
    let account = existing(state, id).await?;
    let is_repeated = is_recorded(state, id, operation.as_ref(), amount).await?;
    let submitted = if is_repeated {
        Submitted::Applied
    } else {
        stays_countable(&account, amount)?;
        let at = state.ledger.now_ms().await?.div_euclid(1000);
        audit(state, peer, id, name, values).await?;
        state.changes.submit(id, make(amount, at, operation.clone())).await?
    };
    // Another node may have been asked for the same with another amount, at this very moment.
    if submitted == Submitted::Applied && !is_repeated {
        is_recorded(state, id, operation.as_ref(), amount).await?;
    }
    let mut body = changed(state, id, submitted).await;
    if let (Value::Object(fields), Some(operation)) = (&mut body, operation) {
        fields.insert("operation_id".to_owned(), json!(operation.as_str()));
        fields.insert("repeated".to_owned(), json!(is_repeated));
    }
    Ok(Json(body))
}

/// Whether the account remembers this operation with this amount.
async fn is_recorded(
    state: &AdminState,
    id: &str,
    operation: Option<&OperationId>,
    amount: NanoUsd,
) -> Result<bool, ApiError> {
    let Some(operation) = operation else { return Ok(false) };
    match state.ledger.operation(id, operation).await? {
        None => Ok(false),
        Some(recorded) if recorded == amount => Ok(true),
        Some(recorded) => Err(ApiError::conflict(format!(
            "operation `{operation}` of account `{id}` is recorded with {recorded} USD, so {amount} USD were not added: another \
             amount needs another operation id"
        ))),
    }
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
