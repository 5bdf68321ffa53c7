//! Why a question of the admin API was not answered.

use std::fmt;

use http::StatusCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::domain::{keys::change::NotChanged, version::Version};

/// What was refused or failed: in HTTP `{"error": {"code", "field", "message", "version"}}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct AdminError {
    /// The kind.
    pub(crate) code: Code,
    /// The field of the question that is at fault, if it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) field: Option<String>,
    /// The fault, and the next step.
    pub(crate) message: String,
    /// The present version, where a change was made from another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) version: Option<Version>,
}

/// The kinds of errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Code {
    /// The question cannot be answered as it is.
    Invalid,
    /// The session of the console needs another role.
    Forbidden,
    /// The key has another text by now.
    OldText,
    /// There is no such thing.
    NotFound,
    /// The path takes other methods.
    MethodNotAllowed,
    /// It is there already, or was done already.
    Duplicate,
    /// The change was made from another version than the present one.
    Changed,
    /// The body is larger than any question's.
    TooLarge,
    /// It failed here.
    Failed,
    /// What the store has cannot be read.
    StoreCorrupt,
    /// The store is away.
    StoreUnavailable,
    /// The audit record takes no lines, so nothing is changed.
    AuditUnavailable,
    /// The journal takes no records, so nothing is changed.
    JournalUnavailable,
    /// The log's home is away.
    LogHomeUnavailable,
    /// A code that this version does not know.
    #[serde(other)]
    Unknown,
}

impl Code {
    /// The HTTP status.
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
    pub(crate) fn new(code: Code, message: impl Into<String>) -> Self {
        Self {
            code,
            field: None,
            message: message.into(),
            version: None,
        }
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(Code::Invalid, message)
    }

    /// A field that cannot be taken.
    pub(crate) fn of_field(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            field: Some(field.into()),
            ..Self::invalid(message)
        }
    }

    pub(crate) fn failed(message: impl Into<String>) -> Self {
        Self::new(Code::Failed, message)
    }

    pub(crate) fn conflict(message: impl Into<String>) -> Self {
        Self::new(Code::Duplicate, message)
    }

    pub(crate) fn not_found(message: impl Into<String>) -> Self {
        Self::new(Code::NotFound, message)
    }

    /// The change was made from another version than the present one.
    pub(crate) fn changed(message: impl Into<String>, present: Version) -> Self {
        Self {
            version: Some(present),
            ..Self::new(Code::Changed, message)
        }
    }

    /// The same behind what was done already.
    pub(crate) fn behind(self, done: &str) -> Self {
        let message = format!("{done}: {self}");
        Self {
            field: None,
            message,
            ..self
        }
    }

    /// The HTTP status.
    pub(crate) const fn status(&self) -> StatusCode {
        self.code.status()
    }
}

/// `FIELD: MESSAGE`, or the message.
impl fmt::Display for AdminError {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(field) = &self.field {
            write!(to, "{field}: ")?;
        }
        to.write_str(&self.message)
    }
}

impl std::error::Error for AdminError {}

impl From<NotChanged> for AdminError {
    fn from(why: NotChanged) -> Self {
        let code = match why {
            NotChanged::Stale { now, .. } => return Self::changed(why.to_string(), now),
            NotChanged::Raises(field) => return Self::of_field(field, why.to_string()),
            NotChanged::ResetWithoutQuota => return Self::of_field("reset", why.to_string()),
            NotChanged::OldText => Code::OldText,
            NotChanged::FormerText => Code::Duplicate,
        };
        Self::new(code, why.to_string())
    }
}
