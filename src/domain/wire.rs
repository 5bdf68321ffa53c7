//! The wire protocols of clients and providers, and the formats they are built of.

pub(crate) mod finish_reason;
pub(crate) mod http1;
pub(crate) mod http2;
pub(crate) mod json_array;
pub(crate) mod json_pick;
pub(crate) mod json_scan;
mod json_skip;
pub(crate) mod model_name;
pub(crate) mod operation;
mod plain_run;
pub(crate) mod protocol;
pub(crate) mod provider_state;
pub mod proxy_protocol;
pub(crate) mod query_value;
pub(crate) mod session_hint;
pub(crate) mod sse;
pub(crate) mod tokens;
pub(crate) mod usage;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A wire protocol that clients speak to weir (docs/interface.md, Endpoints).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// The Messages protocol, `POST /v1/messages`.
    Messages,
    /// The Responses protocol, `POST /v1/responses`.
    Responses,
    /// The Gemini-style GenerateContent protocol, `/v1beta/models/{model}:generateContent`.
    Gemini,
}

impl Protocol {
    /// Every protocol.
    pub(crate) const ALL: [Self; 3] = [Self::Messages, Self::Responses, Self::Gemini];

    /// The label in logs and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Messages => "messages",
            Self::Responses => "responses",
            Self::Gemini => "gemini",
        }
    }

    /// The response header in which clients expect the request's id.
    pub const fn request_id_header(self) -> &'static str {
        match self {
            Self::Messages => "request-id",
            Self::Responses | Self::Gemini => "x-request-id",
        }
    }
}
