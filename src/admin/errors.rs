//! Converts errors of the store, the audit record and the journal into those of the admin API.

use axum::{
    Json,
    response::{IntoResponse, Response},
};
use serde_json::json;

use crate::{
    admin::audit::AuditError,
    api::error::{AdminError, AdminErrorCode},
    money::account_changes::AccountChangeError,
    store::{ChangeError, StoreError},
};

impl From<StoreError> for AdminError {
    fn from(error: StoreError) -> Self {
        let code = match &error {
            StoreError::NotFound => AdminErrorCode::NotFound,
            StoreError::Duplicate | StoreError::Deleted => AdminErrorCode::Duplicate,
            StoreError::Unavailable(_) | StoreError::Busy(_) => AdminErrorCode::StoreUnavailable,
            StoreError::Corrupt(_) => AdminErrorCode::StoreCorrupt,
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
        Self::new(
            AdminErrorCode::AuditUnavailable,
            format!("nothing was changed: {error}"),
        )
    }
}

impl From<AccountChangeError> for AdminError {
    fn from(error: AccountChangeError) -> Self {
        Self::new(
            AdminErrorCode::JournalUnavailable,
            format!("nothing was changed: {error}"),
        )
    }
}

impl IntoResponse for AdminError {
    fn into_response(self) -> Response {
        (self.status(), Json(json!({ "error": self }))).into_response()
    }
}
