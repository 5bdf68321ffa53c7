//! The request and answer types of the admin API, each request with its HTTP method and path. The server and the clients share
//! these types, so neither spells the name of a field in a string.

pub(crate) mod accounts;
pub(crate) mod error;
pub(crate) mod keys;
pub(crate) mod log;
pub(crate) mod node;
pub(crate) mod sessions;
pub(crate) mod usage;
pub(crate) mod values;
pub(crate) mod wire;

use http::Method;
use schemars::JsonSchema;
use serde::{Serialize, de::DeserializeOwned};

use crate::domain::{
    Version,
    keys::KeyId,
    ledger::{OnExhausted, OperationId, ProviderState, QuotaReset},
    money::NanoUsd,
    sign_in::{Role, device_request::UserCode},
};

/// A request to the admin API. The fields that the path names as `{segments}` are sent in the path. All other fields are sent in
/// the query of a GET or DELETE, and in the JSON body of any other method.
pub(crate) trait AdminQuestion: Serialize + DeserializeOwned + JsonSchema + Send + Sync + 'static {
    /// The type of the answer to this request.
    type Answer: Serialize + DeserializeOwned + JsonSchema + Send + Sync + 'static;
    /// The HTTP method of this request. A GET changes nothing, and a recent answer to it may be reused.
    const METHOD: Method;
    /// The path of this request, such as `/v1/keys/{id}`.
    const PATH: &'static str;
    /// The lowest role of a console session that is allowed to make this request.
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

/// Implements [`AdminQuestion`] for a type: `question!(ShowKey => Key: GET "/v1/keys/{id}", Viewer)`. Items that differ from the
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

/// Serializes a type as a JSON string by its `Display`, deserializes it by its `FromStr`, and describes it by a JSON Schema.
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

/// Implements `JsonSchema` for a type by a JSON literal.
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

/// Implements `Deserialize` for a type by `$read`, a function of a JSON value. If `$read` returns `None`, the error is
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
