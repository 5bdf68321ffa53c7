//! Failures after an answer's status line: breaks, and errors that the provider sends.

/// Why a begun answer could not be completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Break {
    /// The provider closed or reset the connection.
    ProviderCut,
    /// The provider ended the answer cleanly, but before it was complete by its protocol.
    ProviderEnded,
    /// The provider was silent for longer than its timeout.
    ProviderTimeout,
    /// The key's quota or the account's balance is used up.
    LimitReached,
    /// weir is shutting down.
    Stopped,
    /// An internal error of weir.
    Internal,
}

impl Break {
    /// The message for the client.
    pub(crate) const fn message(self) -> &'static str {
        match self {
            Self::ProviderCut => "the provider broke the answer off; send the request again",
            Self::ProviderEnded => "the provider ended the answer before it was complete; send the request again",
            Self::ProviderTimeout => "the provider was silent for too long; send the request again",
            Self::LimitReached => {
                "the quota of this API key or the balance of its account is used up; the answer ends here"
            }
            Self::Stopped => {
                "the service is being restarted and the answer took too long to wait for; send the request again"
            }
            Self::Internal => "the gateway failed while passing the answer on; send the request again",
        }
    }
}

/// A provider's error inside an answer. Never contains the message, which is the provider's text and may quote the prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InBandError {
    /// The error's type (Messages, Responses) or status (Gemini).
    pub kind: String,
    /// The error's code, if it has one.
    pub code: Option<String>,
}

impl InBandError {
    /// The corresponding HTTP status: that of the code or the kind, else 502.
    pub(crate) fn status(&self) -> u16 {
        let number = self.code.as_deref().and_then(|code| code.parse::<u16>().ok());
        let number = number.filter(|code| (400..600).contains(code));
        let word = || [self.code.as_deref(), Some(self.kind.as_str())].into_iter().flatten();
        number.or_else(|| word().find_map(status_from_word)).unwrap_or(502)
    }
}

/// The status for an error's type or code, by the three vendors' names.
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
