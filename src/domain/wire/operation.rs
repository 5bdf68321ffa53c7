//! The requests that clients may send, read from method and path (docs/interface.md, Endpoints).

use percent_encoding::percent_decode_str;
use serde::{Deserialize, Serialize};

use crate::domain::wire::{model_name, protocol::Protocol};

/// The path at which a client reads its own key's usage.
pub(crate) const OWN_USAGE_PATH: &str = "/web/v1/me";

/// The path at which Claude Code, signed in to a gateway, reads the settings that the operator gives to all users.
pub(crate) const MANAGED_SETTINGS_PATH: &str = "/managed/settings";

/// The path at which Claude Code, signed in to a gateway, reads how much of its user's quota is spent.
pub(crate) const SPEND_PATH: &str = "/api/oauth/usage";

/// What a client requests from a provider through weir.
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
    /// Every operation.
    pub(crate) const ALL: [Self; 6] = [
        Self::Messages,
        Self::CountTokens,
        Self::Responses,
        Self::GenerateContent,
        Self::StreamGenerateContent,
        Self::GeminiCountTokens,
    ];

    /// The protocol of the operation's request and answer.
    pub const fn protocol(self) -> Protocol {
        match self {
            Self::Messages | Self::CountTokens => Protocol::Messages,
            Self::Responses => Protocol::Responses,
            Self::GenerateContent | Self::StreamGenerateContent | Self::GeminiCountTokens => Protocol::Gemini,
        }
    }

    /// The label in logs and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Messages => "messages",
            Self::CountTokens => "count_tokens",
            Self::Responses => "responses",
            Self::GenerateContent => "generate_content",
            Self::StreamGenerateContent => "stream_generate_content",
            Self::GeminiCountTokens => "gemini_count_tokens",
        }
    }

    /// Whether it counts tokens and generates nothing.
    pub const fn is_token_count(self) -> bool {
        matches!(self, Self::CountTokens | Self::GeminiCountTokens)
    }

    /// The query that clients usually send: that of Claude Code, and that of a stream of server-sent events.
    pub const fn usual_query(self) -> Option<&'static str> {
        match self {
            Self::Messages | Self::CountTokens => Some("beta=true"),
            Self::StreamGenerateContent => Some("alt=sse"),
            Self::Responses | Self::GenerateContent | Self::GeminiCountTokens => None,
        }
    }

    /// Whether the model is named in the path rather than in the body.
    pub const fn has_model_in_path(self) -> bool {
        matches!(self.protocol(), Protocol::Gemini)
    }
}

/// What a request line requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RequestTarget {
    /// A request to forward to a provider.
    Forward {
        operation: Operation,
        /// The model from the path, decoded and checked; `None` if the body names it.
        model: Option<String>,
    },
    /// `GET /v1/models` or `GET /v1beta/models`, or HEAD.
    ListModels,
    /// `GET /v1/models/{model}` or `GET /v1beta/models/{model}`, or HEAD.
    ShowModel {
        /// The model from the path, decoded and checked.
        model: String,
    },
    /// `GET /web/v1/me` or HEAD: the usage of the caller's key.
    OwnUsage,
    /// `GET /managed/settings` or HEAD: the settings for agents that are signed in.
    ManagedSettings,
    /// `GET /api/oauth/usage` or HEAD: how much of the caller's quota is spent.
    Spend,
    /// `HEAD /`, `HEAD /api/hello` or `GET /api/hello`: whether weir responds. No key is needed.
    Hello,
}

/// Why a request line is refused, before any other check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestTargetError {
    /// The path is unknown: 404.
    UnknownPath,
    /// The path exists for other methods: 405.
    MethodNotAllowed {
        /// The `allow` header.
        allow: &'static str,
    },
    /// `/v1/chat/completions` (docs/interface.md, Versioning).
    ChatCompletionsRemoved,
    /// The model name in the path is invalid, or has an empty, `.` or `..` part between its slashes.
    ModelPathInvalid,
}

/// Reads method and path exactly as the client sent them: still percent-encoded, without the query.
pub(crate) fn read_target(method: &str, path: &str) -> Result<RequestTarget, RequestTargetError> {
    match path {
        "/v1/messages" => post(method, Operation::Messages),
        "/v1/messages/count_tokens" => post(method, Operation::CountTokens),
        "/v1/responses" => post(method, Operation::Responses),
        "/v1/chat/completions" => Err(RequestTargetError::ChatCompletionsRemoved),
        "/v1/models" | "/v1beta/models" => read_only(method, RequestTarget::ListModels),
        OWN_USAGE_PATH => read_only(method, RequestTarget::OwnUsage),
        MANAGED_SETTINGS_PATH => read_only(method, RequestTarget::ManagedSettings),
        SPEND_PATH => read_only(method, RequestTarget::Spend),
        "/" if method == "HEAD" => Ok(RequestTarget::Hello),
        "/api/hello" => read_only(method, RequestTarget::Hello),
        _ => match path
            .strip_prefix("/v1beta/models/")
            .or_else(|| path.strip_prefix("/v1/models/"))
        {
            Some(rest) => model_target(method, rest),
            None => Err(RequestTargetError::UnknownPath),
        },
    }
}

/// The protocol for errors on a path whose operation is unknown, from the path's prefix (docs/interface.md, Errors).
pub(crate) fn error_protocol(path: &str) -> Protocol {
    let gemini_method =
        || path.starts_with("/v1/models/") && (path.contains(':') || path.contains("%3A") || path.contains("%3a"));
    // Tuned models are not offered; a client that requests one speaks this protocol (docs/interface.md, Gemini-style).
    let tuned = || path.starts_with("/v1/tunedModels/");
    if path == "/v1beta" || path.starts_with("/v1beta/") || gemini_method() || tuned() {
        Protocol::Gemini
    } else if path == "/v1/messages"
        || path.starts_with("/v1/messages/")
        || matches!(path, MANAGED_SETTINGS_PATH | SPEND_PATH)
    {
        Protocol::Messages
    } else {
        Protocol::Responses
    }
}

fn post(method: &str, operation: Operation) -> Result<RequestTarget, RequestTargetError> {
    if method == "POST" {
        Ok(RequestTarget::Forward { operation, model: None })
    } else {
        Err(RequestTargetError::MethodNotAllowed { allow: "POST" })
    }
}

/// Accepts GET and HEAD, which is answered like GET without the body (RFC 9110 section 9.3.2).
fn read_only(method: &str, target: RequestTarget) -> Result<RequestTarget, RequestTargetError> {
    if matches!(method, "GET" | "HEAD") {
        Ok(target)
    } else {
        Err(RequestTargetError::MethodNotAllowed { allow: "GET, HEAD" })
    }
}

/// Whether a path ends in a method of Gemini-style requests, the colon possibly as `%3A`.
pub(crate) fn has_gemini_method(path: &str) -> bool {
    let last = path.rsplit('/').next().unwrap_or_default();
    let decoded = percent_decode_str(last).decode_utf8_lossy();
    decoded
        .rsplit_once(':')
        .is_some_and(|(_, verb)| gemini_operation(verb).is_some())
}

fn gemini_operation(verb: &str) -> Option<Operation> {
    match verb {
        "generateContent" => Some(Operation::GenerateContent),
        "streamGenerateContent" => Some(Operation::StreamGenerateContent),
        "countTokens" => Some(Operation::GeminiCountTokens),
        _ => None,
    }
}

/// Reads `{model}` or `{model}:{method}`, the colon possibly as `%3A`. The name is decoded once and only looked up: the provider
/// gets its own name of the model from the catalogue, encoded again.
fn model_target(method: &str, rest: &str) -> Result<RequestTarget, RequestTargetError> {
    let Ok(decoded) = percent_decode_str(rest).decode_utf8() else {
        return Err(RequestTargetError::ModelPathInvalid);
    };
    if matches!(method, "GET" | "HEAD") && !has_gemini_method(rest) || !decoded.contains(':') {
        let model = checked_model(&decoded)?;
        return read_only(method, RequestTarget::ShowModel { model });
    }
    let (model, verb) = decoded.rsplit_once(':').unwrap_or_default();
    let operation = gemini_operation(verb).ok_or(RequestTargetError::UnknownPath)?;
    let model = checked_model(model)?;
    if method == "POST" {
        Ok(RequestTarget::Forward {
            operation,
            model: Some(model),
        })
    } else {
        Err(RequestTargetError::MethodNotAllowed { allow: "POST" })
    }
}

/// Checks a name before it is looked up in the catalogue; slashes and colons are allowed.
fn checked_model(model: &str) -> Result<String, RequestTargetError> {
    let is_step = |part: &str| matches!(part, "" | "." | "..");
    if model.split('/').any(is_step) || !model_name::is_plausible(model) {
        return Err(RequestTargetError::ModelPathInvalid);
    }
    Ok(model.to_owned())
}

/// Removes every `key` parameter from a query, `$key` (Google's other spelling) included. Returns the remaining query and the
/// removed values, percent-decoded.
/// The key must not reach a log, a metric or the provider, so this runs before anything else reads the query.
pub(crate) fn split_key(query: &str) -> (String, Vec<String>) {
    let mut left = String::new();
    let mut keys = Vec::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        if matches!(decode_parameter(name).as_str(), "key" | "$key") {
            keys.push(decode_parameter(value));
            continue;
        }
        if !left.is_empty() {
            left.push('&');
        }
        left.push_str(pair);
    }
    (left, keys)
}

fn decode_parameter(text: &str) -> String {
    percent_decode_str(&text.replace('+', " "))
        .decode_utf8_lossy()
        .into_owned()
}

#[cfg(test)]
mod tests;
