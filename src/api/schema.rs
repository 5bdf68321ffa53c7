//! Macros that read and write the API's types as JSON and describe them as JSON Schema.

use crate::domain::{
    keys::key::KeyId,
    ledger::{OnExhausted, OperationId, ProviderState, QuotaReset},
    money::NanoUsd,
    sign_in::user_code::UserCode,
    version::Version,
};

/// Reads and writes a type as a JSON string.
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

        $crate::api::schema::schema!($name, { "type": "string", "description": $description });
    };
}

/// Describes a type by a JSON Schema.
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

/// Reads a type from a JSON value by `$read`. If that returns `None`, the error is `$message`.
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
text_value!(UserCode, "the eight letters that the agent shows");
