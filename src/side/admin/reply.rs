//! Answers of the admin API.

use axum::{
    Json,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::{
    domain::{key::KeyState, secret::ServiceKey},
    side::audit::AuditError,
    store::{KeyView, StoreError},
};

/// An error answer: `{"error":{"code","message"}}`.
#[derive(Debug)]
pub(super) struct ApiError {
    status: StatusCode,
    code: &'static str,
    message: String,
}

impl ApiError {
    pub(super) fn invalid(message: impl Into<String>) -> Self {
        Self {
            status: StatusCode::BAD_REQUEST,
            code: "invalid",
            message: message.into(),
        }
    }

    pub(super) fn failed(message: impl Into<String>) -> Self {
        Self {
            status: StatusCode::INTERNAL_SERVER_ERROR,
            code: "failed",
            message: message.into(),
        }
    }

    pub(super) fn not_found(message: impl Into<String>) -> Self {
        Self {
            status: StatusCode::NOT_FOUND,
            code: "not_found",
            message: message.into(),
        }
    }
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        let (status, code) = match &error {
            StoreError::NotFound => (StatusCode::NOT_FOUND, "not_found"),
            StoreError::Duplicate => (StatusCode::CONFLICT, "duplicate"),
            StoreError::Unavailable(_) => (StatusCode::SERVICE_UNAVAILABLE, "store_unavailable"),
            StoreError::Corrupt(_) => (StatusCode::INTERNAL_SERVER_ERROR, "store_corrupt"),
        };
        Self {
            status,
            code,
            message: error.to_string(),
        }
    }
}

impl From<AuditError> for ApiError {
    fn from(error: AuditError) -> Self {
        let message = format!("nothing was changed: {error}");
        Self {
            status: StatusCode::SERVICE_UNAVAILABLE,
            code: "audit_unavailable",
            message,
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let body = json!({ "error": { "code": self.code, "message": self.message } });
        (self.status, Json(body)).into_response()
    }
}

/// A key as it is shown; the full text only when it has just been made.
pub(super) fn key_body(view: &KeyView, fresh: Option<&ServiceKey>) -> Value {
    let record = &view.record;
    let (state, revoked_at) = match record.state {
        KeyState::Active => ("active", None),
        KeyState::Revoked { at } => ("revoked", Some(at)),
    };
    let mut body = json!({
        "id": record.id.as_str(),
        "name": record.name,
        "account": record.account,
        "state": state,
        "created_at": time(record.created_at),
        "expires_at": record.expires_at.map(time),
        "revoked_at": revoked_at.map(time),
        "last_used": view.last_used.map(time),
        "models": record.models,
        "hint": record.hint,
    });
    if let (Some(key), Value::Object(fields)) = (fresh, &mut body) {
        fields.insert("key".to_owned(), Value::from(key.as_str()));
    }
    body
}

/// RFC 3339 in UTC.
fn time(unix: i64) -> Value {
    Timestamp::from_second(unix).map_or(Value::Null, |time| Value::from(time.to_string()))
}
