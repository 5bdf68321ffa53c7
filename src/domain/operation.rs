//! What a client may ask for: the operations of the three protocols.

use serde::{Deserialize, Serialize};

use crate::domain::protocol::Protocol;

/// One thing a client can ask of a provider through weir.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Operation {
    /// `POST /v1/messages`
    Messages,
    /// `POST /v1/messages/count_tokens`
    CountTokens,
    /// `POST /v1/responses`
    Responses,
    /// `POST /v1beta/models/{model}:generateContent`
    GenerateContent,
    /// `POST /v1beta/models/{model}:streamGenerateContent`
    StreamGenerateContent,
    /// `POST /v1beta/models/{model}:countTokens`
    GeminiCountTokens,
}

impl Operation {
    /// The protocol whose shapes the operation has.
    pub const fn protocol(self) -> Protocol {
        match self {
            Self::Messages | Self::CountTokens => Protocol::Messages,
            Self::Responses => Protocol::Responses,
            Self::GenerateContent | Self::StreamGenerateContent | Self::GeminiCountTokens => Protocol::Gemini,
        }
    }
}
