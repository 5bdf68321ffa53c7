//! The errors that the admin API returns.

use std::fmt;

use http::StatusCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::domain::{Version, keys::change::KeyChangeError};

/// An error of the admin API. The HTTP body is `{"error": {"code", "field", "message", "version"}}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct AdminError {
    /// The kind of error.
    pub(crate) code: AdminErrorCode,
    /// The name of the request's field that is invalid; left out if the error is not about a field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) field: Option<String>,
    /// A sentence for users that says what is wrong and what to do.
    pub(crate) message: String,
    /// The object's current version, if the change was based on another version; left out in other errors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) version: Option<Version>,
}

/// The kinds of errors of the admin API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum AdminErrorCode {
    /// The request is invalid.
    Invalid,
    /// The console session's role is too low for this request.
    Forbidden,
    /// The caller signed in with a former secret of the key, which rotation has replaced.
    OldText,
    /// The object does not exist.
    NotFound,
    /// The path does not support the request's method.
    MethodNotAllowed,
    /// The object already exists, or an operation with this id has already been made.
    Duplicate,
    /// The change was based on a version that is not the object's current version.
    Changed,
    /// The request's body is too large.
    TooLarge,
    /// The node failed to answer the request.
    Failed,
    /// Data in the store is damaged and cannot be read.
    StoreCorrupt,
    /// The store is unreachable or overloaded.
    StoreUnavailable,
    /// The audit record cannot be written, so nothing was changed.
    AuditUnavailable,
    /// The journal cannot be written, so nothing was changed.
    JournalUnavailable,
    /// The log backend is unreachable.
    LogHomeUnavailable,
    /// A code that this version of weir does not have.
    #[serde(other)]
    Unknown,
}

impl AdminErrorCode {
    /// Returns the HTTP status of this kind of error.
    pub(crate) const fn status(self) -> StatusCode {
        match self {
            Self::Invalid => StatusCode::BAD_REQUEST,
            Self::Forbidden | Self::OldText => StatusCode::FORBIDDEN,
            Self::NotFound => StatusCode::NOT_FOUND,
            Self::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
            Self::Duplicate => StatusCode::CONFLICT,
            Self::Changed => StatusCode::PRECONDITION_FAILED,
            Self::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Failed | Self::StoreCorrupt | Self::Unknown => StatusCode::INTERNAL_SERVER_ERROR,
            Self::StoreUnavailable | Self::AuditUnavailable | Self::JournalUnavailable | Self::LogHomeUnavailable => {
                StatusCode::SERVICE_UNAVAILABLE
            }
        }
    }
}

impl AdminError {
    pub(crate) fn new(code: AdminErrorCode, message: impl Into<String>) -> Self {
        Self {
            code,
            field: None,
            message: message.into(),
            version: None,
        }
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(AdminErrorCode::Invalid, message)
    }

    /// Creates the error that a field is invalid.
    pub(crate) fn of_field(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            field: Some(field.into()),
            ..Self::invalid(message)
        }
    }

    pub(crate) fn failed(message: impl Into<String>) -> Self {
        Self::new(AdminErrorCode::Failed, message)
    }

    pub(crate) fn conflict(message: impl Into<String>) -> Self {
        Self::new(AdminErrorCode::Duplicate, message)
    }

    pub(crate) fn not_found(message: impl Into<String>) -> Self {
        Self::new(AdminErrorCode::NotFound, message)
    }

    /// Creates the error that a change was based on a version other than `present`, the object's current version.
    pub(crate) fn changed(message: impl Into<String>, present: Version) -> Self {
        Self {
            version: Some(present),
            ..Self::new(AdminErrorCode::Changed, message)
        }
    }

    /// Puts a description of the work that has already been done in front of the message.
    pub(crate) fn with_context(self, done: &str) -> Self {
        let message = format!("{done}: {self}");
        Self {
            field: None,
            message,
            ..self
        }
    }

    /// Returns the HTTP status of this error.
    pub(crate) const fn status(&self) -> StatusCode {
        self.code.status()
    }
}

/// Writes `FIELD: MESSAGE`, or only the message if the error is not about a field.
impl fmt::Display for AdminError {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(field) = &self.field {
            write!(to, "{field}: ")?;
        }
        to.write_str(&self.message)
    }
}

impl std::error::Error for AdminError {}

impl From<KeyChangeError> for AdminError {
    fn from(why: KeyChangeError) -> Self {
        let code = match why {
            KeyChangeError::Stale { now, .. } => return Self::changed(why.to_string(), now),
            KeyChangeError::Raises(field) => return Self::of_field(field, why.to_string()),
            KeyChangeError::ResetWithoutQuota => return Self::of_field("reset", why.to_string()),
            KeyChangeError::OldText => AdminErrorCode::OldText,
            KeyChangeError::TextReused => AdminErrorCode::Duplicate,
        };
        Self::new(code, why.to_string())
    }
}
