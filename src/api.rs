//! The request, answer and error types of the admin API. Each request type has its HTTP method and path. The server and the
//! clients share these types, so no field name is repeated as a string.

pub(crate) mod accounts;
pub(crate) mod keys;
pub(crate) mod log;
pub(crate) mod node;
pub(crate) mod sessions;
pub(crate) mod usage;
pub(crate) mod values;
pub(crate) mod wire;

use std::fmt;

use http::{Method, StatusCode};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::domain::{
    Version,
    keys::{KeyId, change::KeyChangeError},
    ledger::{OnExhausted, OperationId, ProviderState, QuotaReset},
    money::NanoUsd,
    sign_in::{Role, device_request::UserCode},
};

/// A request to the admin API. If the path contains the name of a field in braces, such as `{id}`, the field is sent in the path.
/// All other fields are sent in the query of a GET or DELETE request, or in the JSON body of any other request.
pub(crate) trait AdminQuestion: Serialize + DeserializeOwned + JsonSchema + Send + Sync + 'static {
    /// The type of the answer to this request.
    type Answer: Serialize + DeserializeOwned + JsonSchema + Send + Sync + 'static;
    /// The HTTP method of this request. A GET request changes nothing, and a recent answer to it can be reused.
    const METHOD: Method;
    /// The path of this request, such as `/v1/keys/{id}`.
    const PATH: &'static str;
    /// The lowest role with which a console session is allowed to make this request.
    const ROLE: Role;
    /// The HTTP status of a successful answer.
    const STATUS: u16 = 200;
    /// The media types of the answer. An answer other than JSON is streamed in pieces, and its type [`Answer`](Self::Answer) is
    /// `String`.
    const MEDIA: &'static [&'static str] = &["application/json"];
    /// Whether this request is allowed to take longer than the normal lifetime of a connection.
    const IS_LONG: bool = false;

    /// Returns the version of the object in the answer, for the header `ETag`; `None` if the object has no version.
    fn version(_: &Self::Answer) -> Option<Version> {
        None
    }
}

/// Implements [`AdminQuestion`] for a type: `question!(ShowKey => Key: GET "/v1/keys/{id}", Viewer)`. Items that replace the
/// trait's defaults can follow after a semicolon.
macro_rules! question {
    ($question:ty => $answer:ty: $method:ident $path:literal, $role:ident $(; $($more:tt)*)?) => {
        impl $crate::api::AdminQuestion for $question {
            type Answer = $answer;
            const METHOD: http::Method = http::Method::$method;
            const PATH: &'static str = $path;
            const ROLE: $crate::domain::sign_in::Role = $crate::domain::sign_in::Role::$role;
            $($($more)*)?
        }
    };
}
pub(crate) use question;

/// Implements `Serialize`, `Deserialize` and `JsonSchema` for a type that is a string in JSON. The string is written with the
/// type's `Display` and parsed with its `FromStr`.
macro_rules! text_value {
    ($name:ident, $description:literal) => {
        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                let value = <serde_json::Value as serde::Deserialize>::deserialize(from)?;
                value.as_str().unwrap_or_default().parse().map_err(serde::de::Error::custom)
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.collect_str(self)
            }
        }

        $crate::api::schema!($name, { "type": "string", "description": $description });
    };
}

/// Implements `JsonSchema` for a type. The schema is given as a JSON literal.
macro_rules! schema {
    ($name:ident, $schema:tt) => {
        impl schemars::JsonSchema for $name {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }

            fn inline_schema() -> bool {
                true
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!($schema)
            }
        }
    };
}

/// Implements `Deserialize` for a type. `$read` is a function that converts a JSON value; if it returns `None`, the error is
/// `$message`.
macro_rules! json_value {
    ($name:ident, $message:expr, $read:expr) => {
        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                let read: fn(&serde_json::Value) -> Result<Option<Self>, String> = $read;
                let read = read(&<serde_json::Value as serde::Deserialize>::deserialize(from)?)
                    .map_err(serde::de::Error::custom)?;
                read.ok_or_else(|| serde::de::Error::custom($message))
            }
        }
    };
}
pub(super) use {json_value, schema, text_value};

schema!(KeyId, { "type": "string", "pattern": "^key_[0-9A-Za-z]{16}$" });
schema!(Version, { "type": "string", "pattern": "^[0-9]+-[0-9a-f]{8}$" });
schema!(OperationId, { "type": "string", "pattern": "^[0-9A-Za-z._-]{1,64}$" });
schema!(NanoUsd, { "type": "integer", "description": "nano-USD, 10^-9 USD" });
schema!(QuotaReset, { "type": "string", "enum": ["none", "daily", "weekly", "monthly"] });
schema!(OnExhausted, { "type": "string", "enum": ["finish", "cut"] });
schema!(ProviderState, { "type": "string", "enum": ["own", "any"] });
text_value!(UserCode, "the eight letters that the agent displays");

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
    /// The caller signed in with a former secret of the key. A rotation has replaced this secret.
    OldText,
    /// The object does not exist.
    NotFound,
    /// The path does not support the request's method.
    MethodNotAllowed,
    /// The object already exists, or an operation with this id has already been performed.
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
    /// Another version of weir has sent an error code that this version does not know.
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

    /// Creates the error for an invalid field.
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

    /// Creates the error for a change that was based on a version other than `present`, the object's current version.
    pub(crate) fn changed(message: impl Into<String>, present: Version) -> Self {
        Self {
            version: Some(present),
            ..Self::new(AdminErrorCode::Changed, message)
        }
    }

    /// Prefixes the message with `done`, a description of the work that has already been done.
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

/// Formats the error as `FIELD: MESSAGE`, or as the message alone if the error is not about a field.
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
