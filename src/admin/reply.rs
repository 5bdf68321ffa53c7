//! Answers of the admin API.

use axum::{
    Json,
    response::{IntoResponse, Response},
};
use jiff::Timestamp;
use serde_json::{Value, json};

pub(super) use crate::api::error::AdminError;
use crate::{
    admin::audit::AuditError,
    api::error::Code,
    domain::{
        keys::{
            key::{KeyRecord, KeyState},
            secret::ServiceKey,
        },
        ledger::{KeySpend, Reset, period::resets_at},
        money::NanoUsd,
    },
    money::account_changes::AccountChangeError,
    store::{ChangeError, KeyView, StoreError},
};

/// The JSON body of a success, or what was refused.
pub(super) type JsonResult = Result<Json<Value>, AdminError>;

impl From<StoreError> for AdminError {
    fn from(error: StoreError) -> Self {
        let code = match &error {
            StoreError::NotFound => Code::NotFound,
            StoreError::Duplicate => Code::Duplicate,
            StoreError::Unavailable(_) | StoreError::Busy(_) => Code::StoreUnavailable,
            StoreError::Corrupt(_) => Code::StoreCorrupt,
        };
        Self::new(code, error.to_string())
    }
}

impl From<ChangeError> for AdminError {
    fn from(error: ChangeError) -> Self {
        match error {
            ChangeError::Store(error) => error.into(),
            ChangeError::NotChanged(why) => why.into(),
        }
    }
}

impl From<AuditError> for AdminError {
    fn from(error: AuditError) -> Self {
        Self::new(Code::AuditUnavailable, format!("nothing was changed: {error}"))
    }
}

impl From<AccountChangeError> for AdminError {
    fn from(error: AccountChangeError) -> Self {
        Self::new(Code::JournalUnavailable, format!("nothing was changed: {error}"))
    }
}

impl IntoResponse for AdminError {
    fn into_response(self) -> Response {
        (self.status(), Json(json!({ "error": self }))).into_response()
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
