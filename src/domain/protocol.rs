//! The three wire protocols and their shapes.

use serde::{Deserialize, Serialize};

mod dialect;
mod error_form;
mod facts;
pub(in crate::domain) mod gemini;
mod made;
pub(in crate::domain) mod messages;
pub mod model_list;
pub mod model_page;
pub mod observer;
pub mod provider_error;
pub(in crate::domain) mod responses;
mod spoken;

pub use error_form::ErrorForm;
pub use made::Made;
pub use model_list::{ListedModel, model_entry, models_list};
pub use observer::{FailureKind, Framing, InBandError, MidStreamFailure, Observed, Observer, framing_of};

/// A wire protocol that clients speak to weir (docs/interface.md, Endpoints).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
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
    /// The label in logs and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Messages => "messages",
            Self::Responses => "responses",
            Self::Gemini => "gemini",
        }
    }

    /// The response header in which clients look for the request's id.
    pub const fn request_id_header(self) -> &'static str {
        match self {
            Self::Messages => "request-id",
            Self::Responses | Self::Gemini => "x-request-id",
        }
    }
}
