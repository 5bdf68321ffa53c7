//! What a client may ask for, read from method and path (docs/interface.md, Endpoints).

use percent_encoding::percent_decode_str;
use serde::{Deserialize, Serialize};

use crate::domain::wire::{model_name, protocol::Protocol};

/// Where whoever has a key sees what it has used.
pub(crate) const OWN_USAGE_PATH: &str = "/web/v1/me";

/// Where Claude Code, signed in to a gateway, reads the settings that its operator gives to everyone.
pub(crate) const MANAGED_SETTINGS_PATH: &str = "/managed/settings";

/// Where Claude Code, signed in to a gateway, reads what of its user's quota is spent.
pub(crate) const SPEND_PATH: &str = "/api/oauth/usage";

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
    /// Every operation.
    pub(crate) const ALL: [Self; 6] = [
        Self::Messages,
        Self::CountTokens,
        Self::Responses,
        Self::GenerateContent,
        Self::StreamGenerateContent,
        Self::GeminiCountTokens,
    ];

    /// The protocol whose shapes the operation has.
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
    pub const fn counts_tokens(self) -> bool {
        matches!(self, Self::CountTokens | Self::GeminiCountTokens)
    }

    /// The query that clients usually send: Claude Code's, and that of a stream in server-sent events.
    pub const fn usual_query(self) -> Option<&'static str> {
        match self {
            Self::Messages | Self::CountTokens => Some("beta=true"),
            Self::StreamGenerateContent => Some("alt=sse"),
            Self::Responses | Self::GenerateContent | Self::GeminiCountTokens => None,
        }
    }

    /// Whether the model is named in the path rather than in the body.
    pub const fn model_in_path(self) -> bool {
        matches!(self.protocol(), Protocol::Gemini)
    }
}

/// What a request line asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// To be forwarded to a provider; `model` when the path names it.
    Forward {
        operation: Operation,
        /// The model from the path, decoded and checked.
        model: Option<String>,
    },
    /// `GET /v1/models` or `GET /v1beta/models`, or HEAD.
    ListModels,
    /// `GET /v1/models/{model}` or `GET /v1beta/models/{model}`, or HEAD.
    ShowModel {
        /// The model from the path, decoded and checked.
        model: String,
    },
    /// `GET /web/v1/me` or HEAD: what the caller's key has used.
    OwnUsage,
    /// `GET /managed/settings` or HEAD: the settings of agents that are signed in.
    ManagedSettings,
    /// `GET /api/oauth/usage` or HEAD: what of the caller's quota is spent.
    Spend,
    /// `HEAD /`, `HEAD /api/hello` or `GET /api/hello`: whether somebody is there. No key is needed.
    Hello,
}

/// Why a request line is refused before anything else is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TargetError {
    /// No such path: 404.
    UnknownPath,
    /// The path exists, with other methods: 405.
    MethodNotAllowed {
        /// The `allow` header.
        allow: &'static str,
    },
    /// `/v1/chat/completions` (docs/interface.md, Versioning).
    ChatCompletionsRemoved,
    /// A model name in the path that no model can have, or one with an empty part or a part of dots between its slashes.
    ModelPathInvalid,
}

/// Reads method and path, exactly as the client sent them (still percent-encoded, without the query).
pub(crate) fn target(method: &str, path: &str) -> Result<Target, TargetError> {
    match path {
        "/v1/messages" => post(method, Operation::Messages),
        "/v1/messages/count_tokens" => post(method, Operation::CountTokens),
        "/v1/responses" => post(method, Operation::Responses),
        "/v1/chat/completions" => Err(TargetError::ChatCompletionsRemoved),
        "/v1/models" | "/v1beta/models" => read_only(method, Target::ListModels),
        OWN_USAGE_PATH => read_only(method, Target::OwnUsage),
        MANAGED_SETTINGS_PATH => read_only(method, Target::ManagedSettings),
        SPEND_PATH => read_only(method, Target::Spend),
        "/" if method == "HEAD" => Ok(Target::Hello),
        "/api/hello" => read_only(method, Target::Hello),
        _ => match path
            .strip_prefix("/v1beta/models/")
            .or_else(|| path.strip_prefix("/v1/models/"))
        {
            Some(rest) => model_target(method, rest),
            None => Err(TargetError::UnknownPath),
        },
    }
}

/// The protocol whose error shape a path gets when nothing better is known: that of its prefix (docs/interface.md,
/// Errors).
pub(crate) fn shape_of(path: &str) -> Protocol {
    let gemini_method =
        || path.starts_with("/v1/models/") && (path.contains(':') || path.contains("%3A") || path.contains("%3a"));
    // Tuned models are not offered; who asks for one speaks this protocol (docs/interface.md, Gemini-style).
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

fn post(method: &str, operation: Operation) -> Result<Target, TargetError> {
    if method == "POST" {
        Ok(Target::Forward { operation, model: None })
    } else {
        Err(TargetError::MethodNotAllowed { allow: "POST" })
    }
}

/// HEAD is answered like GET, without the body (RFC 9110 section 9.3.2).
fn read_only(method: &str, target: Target) -> Result<Target, TargetError> {
    if matches!(method, "GET" | "HEAD") {
        Ok(target)
    } else {
        Err(TargetError::MethodNotAllowed { allow: "GET, HEAD" })
    }
}

/// Whether a path ends in one of the methods that Gemini-style requests have, the colon possibly as `%3A`.
pub(crate) fn names_method(path: &str) -> bool {
    let last = path.rsplit('/').next().unwrap_or_default();
    let decoded = percent_decode_str(last).decode_utf8_lossy();
    decoded
        .rsplit_once(':')
        .is_some_and(|(_, verb)| operation_of(verb).is_some())
}

fn operation_of(verb: &str) -> Option<Operation> {
    match verb {
        "generateContent" => Some(Operation::GenerateContent),
        "streamGenerateContent" => Some(Operation::StreamGenerateContent),
        "countTokens" => Some(Operation::GeminiCountTokens),
        _ => None,
    }
}

/// `{model}` or `{model}:{method}`, the colon possibly as `%3A`. Decoded once, and only looked up: what goes to a provider is
/// the name that the catalogue has for it there, encoded anew.
fn model_target(method: &str, rest: &str) -> Result<Target, TargetError> {
    let Ok(decoded) = percent_decode_str(rest).decode_utf8() else {
        return Err(TargetError::ModelPathInvalid);
    };
    if matches!(method, "GET" | "HEAD") && !names_method(rest) || !decoded.contains(':') {
        let model = checked_model(&decoded)?;
        return read_only(method, Target::ShowModel { model });
    }
    let (model, verb) = decoded.rsplit_once(':').unwrap_or_default();
    let operation = operation_of(verb).ok_or(TargetError::UnknownPath)?;
    let model = checked_model(model)?;
    if method == "POST" {
        Ok(Target::Forward {
            operation,
            model: Some(model),
        })
    } else {
        Err(TargetError::MethodNotAllowed { allow: "POST" })
    }
}

/// A name to look up in the catalogue: any that a model may have, slashes and colons included.
fn checked_model(model: &str) -> Result<String, TargetError> {
    let is_step = |part: &str| matches!(part, "" | "." | "..");
    if model.split('/').any(is_step) || !model_name::is_plausible(model) {
        return Err(TargetError::ModelPathInvalid);
    }
    Ok(model.to_owned())
}

/// Removes every `key` parameter from a query, `$key` (Google's other spelling) included, and returns (what is left, the values
/// removed, percent-decoded).
/// The key must not reach a log, a metric or the provider, so this runs before anything else looks at the query.
pub(crate) fn split_key(query: &str) -> (String, Vec<String>) {
    let mut left = String::new();
    let mut keys = Vec::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        if matches!(decoded(name).as_str(), "key" | "$key") {
            keys.push(decoded(value));
            continue;
        }
        if !left.is_empty() {
            left.push('&');
        }
        left.push_str(pair);
    }
    (left, keys)
}

fn decoded(text: &str) -> String {
    percent_decode_str(&text.replace('+', " "))
        .decode_utf8_lossy()
        .into_owned()
}

#[cfg(test)]
mod tests;
