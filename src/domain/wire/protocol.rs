//! Reads the reports in answers of each protocol, and writes model lists and errors in the protocols of clients.

mod chat;
mod created_state;
mod dialect;
mod error_form;
pub(in crate::domain) mod gemini;
pub(in crate::domain) mod messages;
pub(crate) mod model_list;
pub(crate) mod observer;
pub(crate) mod provider_error;
pub(in crate::domain) mod responses;
mod varying;

use std::borrow::Cow;

use smol_str::SmolStr;

use crate::domain::wire::{
    json_pick::replace_bytes,
    usage::{UsageSource, fields::is_name},
};

pub use crate::domain::wire::Protocol;
pub(crate) use crate::domain::wire::protocol::created_state::CreatedState;
pub(crate) use crate::domain::wire::protocol::error_form::ErrorForm;
pub(crate) use crate::domain::wire::protocol::model_list::{ListedModel, model_entry, models_list};
pub(crate) use crate::domain::wire::protocol::observer::MessageBoundaries;
pub(crate) use crate::domain::wire::protocol::observer::framing_from_content_type;
pub use crate::domain::wire::protocol::observer::{AnswerFraming, AnswerReport, Observer};

/// The finish reason that is logged instead of one that is not in [`WORDS`].
const OTHER: &str = "other";

/// The finish reasons that the protocols define, and those that some providers are known to add.
const WORDS: [&str; 47] = [
    // Messages: `stop_reason` (https://docs.claude.com/en/api/handling-stop-reasons).
    "end_turn",
    "max_tokens",
    "stop_sequence",
    "tool_use",
    "pause_turn",
    "refusal",
    "model_context_window_exceeded",
    // Added by providers that speak Messages.
    "sensitive",
    "network_error",
    "repetition_truncation",
    // Responses: `status`, and `incomplete_details.reason` (https://platform.openai.com/docs/api-reference/responses/object).
    "completed",
    "failed",
    "in_progress",
    "cancelled",
    "queued",
    "incomplete",
    "max_output_tokens",
    "max_messages",
    "content_filter",
    "steered",
    // GenerateContent: `finishReason` and `blockReason` (https://ai.google.dev/api/generate-content).
    "FINISH_REASON_UNSPECIFIED",
    "BLOCK_REASON_UNSPECIFIED",
    "STOP",
    "MAX_TOKENS",
    "SAFETY",
    "RECITATION",
    "LANGUAGE",
    "OTHER",
    "BLOCKLIST",
    "PROHIBITED_CONTENT",
    "SPII",
    "JAILBREAK",
    "MALFORMED_FUNCTION_CALL",
    "UNEXPECTED_TOOL_CALL",
    "TOO_MANY_TOOL_CALLS",
    "MISSING_THOUGHT_SIGNATURE",
    "MALFORMED_RESPONSE",
    "IMAGE_SAFETY",
    "IMAGE_PROHIBITED_CONTENT",
    "IMAGE_OTHER",
    "IMAGE_RECITATION",
    "NO_IMAGE",
    "ESCALATION",
    "CONTINUATION",
    "MODEL_ARMOR",
    "PUP_LIMITED_DISABLED",
    OTHER,
];

/// Returns `text` if it is one of [`WORDS`], otherwise `other`.
pub(crate) fn known_or_other(text: &str) -> &'static str {
    WORDS.iter().find(|word| **word == text).copied().unwrap_or(OTHER)
}

/// The facts that an answer has reported so far, except for its usage.
#[derive(Clone, Debug, Default)]
struct AnswerFacts {
    /// Whether an event or element has arrived that is neither a ping nor an error.
    has_begun: bool,
    content_seen: bool,
    /// Whether the event that ends the answer has arrived.
    terminal: bool,
    finish_reason: Option<SmolStr>,
    error: Option<InBandError>,
    model: Option<SmolStr>,
    /// The identifier under which the provider may store the answer; `None` until it is known.
    answer_id: Option<SmolStr>,
    done_marker: bool,
    created_state: CreatedState,
}

/// Replaces `kept` with `text`, unless `text` is `None` or equal to `kept`. A text that is the same in every event is allocated
/// only once.
fn update_text(kept: &mut Option<SmolStr>, text: Option<Cow<'_, str>>) {
    if let Some(text) = text
        && kept.as_deref() != Some(text.as_ref())
    {
        *kept = Some(text.into());
    }
}

/// Replaces `kept` with `text`, the name of a tier. A text that cannot be such a name is ignored (see [`is_name`]).
fn update_name(kept: &mut Option<SmolStr>, text: Option<Cow<'_, str>>) {
    update_text(kept, text.filter(|text| is_name(text)));
}

/// Returns the source of a reported usage. `is_whole` is true if all counts that are billed were reported and no later report can
/// change them.
fn reported_source(is_whole: bool) -> UsageSource {
    if is_whole {
        UsageSource::Reported
    } else {
        UsageSource::Partial
    }
}

/// Replaces the contents of `kept` with the JSON text `json`, unless that is `None`. The buffer's memory is reused.
fn update_json(kept: &mut Vec<u8>, json: Option<&[u8]>) {
    if let Some(json) = json {
        replace_bytes(kept, json);
    }
}

/// Creates an in-band error with the type `kind` and the code `code`. If `kind` is `None`, the type is `fallback`.
fn in_band_error(kind: Option<Cow<'_, str>>, fallback: &str, code: Option<Cow<'_, str>>) -> InBandError {
    InBandError {
        kind: kind.map_or_else(|| fallback.to_owned(), Cow::into_owned),
        code: code.map(Cow::into_owned),
    }
}

/// The reason why an answer that had begun could not be completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Break {
    /// The provider closed or reset the connection.
    ProviderCut,
    /// The provider ended the answer without an error, but before the answer was complete according to its protocol.
    ProviderEnded,
    /// The provider was silent for longer than its timeout.
    ProviderTimeout,
    /// The quota of the API key or the balance of its account is used up.
    LimitReached,
    /// weir is shutting down.
    Stopped,
    /// weir failed with an internal error.
    Internal,
}

impl Break {
    /// Returns the message for the client.
    pub(crate) const fn message(self) -> &'static str {
        match self {
            Self::ProviderCut => "the provider broke the answer off; send the request again",
            Self::ProviderEnded => "the provider ended the answer before it was complete; send the request again",
            Self::ProviderTimeout => "the provider was silent for too long; send the request again",
            Self::LimitReached => {
                "the quota of this API key or the balance of its account is used up; the answer ends here"
            }
            Self::Stopped => {
                "the service is being restarted, and the answer was not complete in time; send the request again"
            }
            Self::Internal => "the gateway failed while passing the answer on; send the request again",
        }
    }
}

/// An error that a provider has put into an answer. It never contains the error's message, which is text of the provider and may
/// quote the prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InBandError {
    /// The error's type (Messages, Responses) or status (Gemini).
    pub kind: String,
    /// The error's code; `None` if it has none.
    pub code: Option<String>,
}

impl InBandError {
    /// Returns the HTTP status that corresponds to the error's code or, without one, to its kind; 502 if neither has a status.
    pub(crate) fn status(&self) -> u16 {
        let number = self.code.as_deref().and_then(|code| code.parse::<u16>().ok());
        let number = number.filter(|code| (400..600).contains(code));
        let word = || [self.code.as_deref(), Some(self.kind.as_str())].into_iter().flatten();
        number.or_else(|| word().find_map(status_from_word)).unwrap_or(502)
    }
}

/// Returns the HTTP status for the type or code of an error in the Messages, Responses or Gemini-style protocol; `None` for an
/// unknown type or code.
fn status_from_word(word: &str) -> Option<u16> {
    Some(match word {
        "invalid_request_error"
        | "invalid_prompt"
        | "context_length_exceeded"
        | "INVALID_ARGUMENT"
        | "FAILED_PRECONDITION"
        | "OUT_OF_RANGE" => 400,
        "authentication_error" | "invalid_api_key" | "UNAUTHENTICATED" => 401,
        "billing_error" => 402,
        "permission_error" | "permission_denied" | "PERMISSION_DENIED" => 403,
        "not_found_error" | "not_found" | "model_not_found" | "NOT_FOUND" => 404,
        "conflict_error" | "ABORTED" | "ALREADY_EXISTS" => 409,
        "request_too_large" => 413,
        "rate_limit_error" | "rate_limit_exceeded" | "insufficient_quota" | "RESOURCE_EXHAUSTED" => 429,
        "api_error" | "server_error" | "INTERNAL" | "UNKNOWN" => 500,
        "overloaded_error" => 529,
        "server_is_overloaded" | "UNAVAILABLE" => 503,
        "timeout_error" | "DEADLINE_EXCEEDED" => 504,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_protocols_words_stand_and_no_other_text_does() {
        for known in ["end_turn", "completed", "max_output_tokens", "MAX_TOKENS", "other"] {
            assert_eq!(known_or_other(known), known);
        }
        for unknown in ["", "End_Turn", "end_turn ", "the prompt\nwas", &"x".repeat(1 << 20)] {
            assert_eq!(known_or_other(unknown), "other");
        }
    }

    #[test]
    fn an_error_in_an_answer_has_the_status_of_its_code_or_else_of_its_kind() {
        for (kind, code, expected) in [
            ("overloaded_error", None, 529),
            ("error", Some("429"), 429),
            ("server_error", Some("rate_limit_exceeded"), 429),
            ("UNAVAILABLE", Some("503"), 503),
            ("invalid_request_error", Some("some_word"), 400),
            ("error", Some("1234"), 502),
            ("error", None, 502),
        ] {
            let error = InBandError {
                kind: kind.to_owned(),
                code: code.map(str::to_owned),
            };
            assert_eq!(error.status(), expected, "{error:?}");
        }
    }
}
