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
    money::account_changes::AccountChangeError,
    store::{ChangeError, StoreError},
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

/// RFC 3339 in UTC.
pub(super) fn time_ms(unix_ms: i64) -> Value {
    Timestamp::from_millisecond(unix_ms).map_or(Value::Null, |time| Value::from(time.to_string()))
}

/// RFC 3339 in UTC.
pub(super) fn time(unix: i64) -> Value {
    Timestamp::from_second(unix).map_or(Value::Null, |time| Value::from(time.to_string()))
}
