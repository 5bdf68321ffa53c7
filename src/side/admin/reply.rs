//! Answers of the admin API.

use axum::{
    Json,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::{
    domain::{
        keys::{
            change::NotChanged,
            key::{KeyRecord, KeyState},
            secret::ServiceKey,
        },
        ledger::{AccountView, KeySpend, Reset, period::resets_at},
        money::NanoUsd,
        version::Version,
    },
    money::account_changes::AccountChangeError,
    side::audit::AuditError,
    store::{ChangeError, KeyView, StoreError},
};

/// The JSON body of a success, or what was refused.
pub(super) type JsonResult = Result<Json<Value>, ApiError>;

/// An error answer: `{"error":{"code","message"}}`.
#[derive(Debug)]
pub(super) struct ApiError {
    status: StatusCode,
    code: &'static str,
    message: String,
    /// The present version, where a change was made from another one.
    version: Option<Version>,
}

impl ApiError {
    fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Self {
            status,
            code,
            message: message.into(),
            version: None,
        }
    }

    pub(super) const fn status(&self) -> StatusCode {
        self.status
    }

    /// What is wrong and what to do.
    pub(super) fn message(&self) -> &str {
        &self.message
    }

    pub(super) fn invalid(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "invalid", message)
    }

    pub(super) fn failed(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "failed", message)
    }

    /// What is needed is away; it may come back.
    pub(super) fn unavailable(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, code, message)
    }

    pub(super) fn conflict(message: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, "duplicate", message)
    }

    pub(super) fn not_found(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not_found", message)
    }

    /// The change was made from another version than the present one.
    pub(super) fn changed(message: impl Into<String>, present: Version) -> Self {
        Self {
            version: Some(present),
            ..Self::new(StatusCode::PRECONDITION_FAILED, "changed", message)
        }
    }

    /// The same behind what was done already.
    pub(super) fn behind(self, done: &str) -> Self {
        let message = format!("{done}: {}", self.message);
        Self { message, ..self }
    }
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        let (status, code) = match &error {
            StoreError::NotFound => (StatusCode::NOT_FOUND, "not_found"),
            StoreError::Duplicate => (StatusCode::CONFLICT, "duplicate"),
            StoreError::Unavailable(_) | StoreError::Busy(_) => (StatusCode::SERVICE_UNAVAILABLE, "store_unavailable"),
            StoreError::Corrupt(_) => (StatusCode::INTERNAL_SERVER_ERROR, "store_corrupt"),
        };
        Self::new(status, code, error.to_string())
    }
}

impl From<NotChanged> for ApiError {
    fn from(why: NotChanged) -> Self {
        let (status, code, version) = match why {
            NotChanged::Stale { now, .. } => (StatusCode::PRECONDITION_FAILED, "changed", Some(now)),
            NotChanged::OldText => (StatusCode::FORBIDDEN, "old_text", None),
            NotChanged::FormerText => (StatusCode::CONFLICT, "duplicate", None),
            NotChanged::Raises(_) | NotChanged::ResetWithoutQuota => (StatusCode::BAD_REQUEST, "invalid", None),
        };
        Self {
            version,
            ..Self::new(status, code, why.to_string())
        }
    }
}

impl From<ChangeError> for ApiError {
    fn from(error: ChangeError) -> Self {
        match error {
            ChangeError::Store(error) => error.into(),
            ChangeError::NotChanged(why) => why.into(),
        }
    }
}

impl From<AuditError> for ApiError {
    fn from(error: AuditError) -> Self {
        Self::unavailable("audit_unavailable", format!("nothing was changed: {error}"))
    }
}

impl From<AccountChangeError> for ApiError {
    fn from(error: AccountChangeError) -> Self {
        Self::unavailable("journal_unavailable", format!("nothing was changed: {error}"))
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut error = json!({ "code": self.code, "message": self.message });
        if let (Some(version), Value::Object(fields)) = (self.version, &mut error) {
            fields.insert("version".to_owned(), json!(version));
        }
        (self.status, Json(json!({ "error": error }))).into_response()
    }
}

/// A key as it is shown; the full text only when it has just been made. `spend` is `None` where the store does not tell.
pub(super) fn key_body(view: &KeyView, spend: Option<&KeySpend>, now_ms: i64, fresh: Option<&ServiceKey>) -> Value {
    let record = &view.record;
    let terms = &record.terms;
    let spent = spend.map(|spend| match terms.reset {
        Reset::None => spend.all,
        Reset::Daily => spend.day,
        Reset::Weekly => spend.week,
        Reset::Monthly => spend.month,
    });
    let held = spend.map(|spend| spend.held);
    let (state, revoked_at) = match record.state {
        KeyState::Active => ("active", None),
        KeyState::Revoked { at } => ("revoked", Some(at)),
    };
    let mut body = json!({
        "id": record.id.as_str(),
        "version": view.version().to_string(),
        "name": record.name,
        "account": record.account,
        "state": state,
        "created_at": time(record.created_at),
        "expires_at": record.expires_at.map(time),
        "revoked_at": revoked_at.map(time),
        "last_used": view.last_used.map(time),
        "models": record.models,
        "hint": record.hint,
        "former": former(record, now_ms.div_euclid(1000)),
        "quota_usd": usd(terms.quota),
        "quota_nano_usd": terms.quota,
        "reset": terms.reset.as_str(),
        "resets_at": resets_at(terms.reset, now_ms).map(time),
        "spent_usd": usd(spent),
        "spent_nano_usd": spent,
        "spent": spend.map(periods),
        "held_usd": usd(held),
        "held_nano_usd": held,
        "running": spend.map(|spend| spend.running),
        "rpm": terms.rates.rpm,
        "tpm": terms.rates.tpm,
        "concurrency": terms.rates.concurrency,
        "on_exhausted": terms.on_exhausted.as_str(),
        "finish_factor": terms.finish_factor.get(),
        "notify_percent": terms.notify,
    });
    if let (Some(key), Value::Object(fields)) = (fresh, &mut body) {
        fields.insert("key".to_owned(), Value::from(key.as_str()));
    }
    body
}

/// The text before the present one, while it works.
fn former(record: &KeyRecord, now: i64) -> Option<Value> {
    let former = record.former.as_ref().filter(|former| former.is_good(now))?;
    Some(json!({ "hint": former.hint, "until": time(former.until) }))
}

/// What a key has spent in each period, as `GET /web/v1/me` tells it.
fn periods(spend: &KeySpend) -> Value {
    let KeySpend {
        all, day, week, month, ..
    } = *spend;
    json!({
        "day_usd": day.to_string(), "day_nano_usd": day,
        "week_usd": week.to_string(), "week_nano_usd": week,
        "month_usd": month.to_string(), "month_nano_usd": month,
        "all_usd": all.to_string(), "all_nano_usd": all,
    })
}

/// An account as it is shown.
pub(super) fn account_body(view: &AccountView) -> Map<String, Value> {
    let terms = &view.record.terms;
    let fields = [
        ("id", json!(view.id)),
        ("version", json!(view.record.version())),
        (
            "state",
            json!(if view.record.suspended { "suspended" } else { "active" }),
        ),
        ("balance_usd", usd(Some(view.balance))),
        ("balance_nano_usd", json!(view.balance)),
        ("held_usd", usd(Some(view.held))),
        ("held_nano_usd", json!(view.held)),
        ("spent_usd", usd(Some(view.spent))),
        ("spent_nano_usd", json!(view.spent)),
        ("running", json!(view.running)),
        ("low_balance_usd", usd(terms.low_balance)),
        ("low_balance_nano_usd", json!(terms.low_balance)),
        ("balance_is_low", json!(view.is_low())),
        ("notify_percent", json!(terms.notify)),
        ("rpm", json!(terms.rates.rpm)),
        ("tpm", json!(terms.rates.tpm)),
        ("concurrency", json!(terms.rates.concurrency)),
        ("provider_state", json!(terms.provider_state.as_str())),
        ("created_at", time(view.created_at)),
    ];
    fields
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
}

/// An amount as a decimal text.
fn usd(amount: Option<NanoUsd>) -> Value {
    amount.map_or(Value::Null, |amount| Value::from(amount.to_string()))
}

/// RFC 3339 in UTC.
pub(super) fn time_ms(unix_ms: i64) -> Value {
    Timestamp::from_millisecond(unix_ms).map_or(Value::Null, |time| Value::from(time.to_string()))
}

/// RFC 3339 in UTC.
pub(super) fn time(unix: i64) -> Value {
    Timestamp::from_second(unix).map_or(Value::Null, |time| Value::from(time.to_string()))
}
