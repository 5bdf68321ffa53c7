//! The operations that clients can request, read from a request's method and path (docs/interface.md, Endpoints), and the rules
//! for model names.

#[cfg(test)]
mod tests;

use percent_encoding::percent_decode_str;
use serde::{Deserialize, Serialize};

use crate::domain::wire::{UpstreamProtocol, protocol::Protocol};

/// The path at which a client can read the usage of its own API key.
pub(crate) const OWN_USAGE_PATH: &str = "/web/v1/me";

/// The path at which Claude Code, when signed in to a gateway, reads the settings that the operator has set for all users.
pub(crate) const MANAGED_SETTINGS_PATH: &str = "/managed/settings";

/// The path at which Claude Code, when signed in to a gateway, reads how much of its user's quota is spent.
pub(crate) const SPEND_PATH: &str = "/api/oauth/usage";

/// The kind of work that a client requests from a provider through weir.
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
    /// All operations.
    pub(crate) const ALL: [Self; 6] = [
        Self::Messages,
        Self::CountTokens,
        Self::Responses,
        Self::GenerateContent,
        Self::StreamGenerateContent,
        Self::GeminiCountTokens,
    ];

    /// Returns the protocol of the operation's requests and answers.
    pub const fn protocol(self) -> Protocol {
        match self {
            Self::Messages | Self::CountTokens => Protocol::Messages,
            Self::Responses => Protocol::Responses,
            Self::GenerateContent | Self::StreamGenerateContent | Self::GeminiCountTokens => Protocol::Gemini,
        }
    }

    /// Returns the operation's name, which is its label in logs and metrics.
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

    /// Whether the operation only counts tokens and generates no answer.
    pub const fn is_token_count(self) -> bool {
        matches!(self, Self::CountTokens | Self::GeminiCountTokens)
    }

    /// Returns the query that clients usually send for the operation: Claude Code's query, or the one that requests server-sent
    /// events. `None` if they usually send none.
    pub const fn usual_query(self) -> Option<&'static str> {
        match self {
            Self::Messages | Self::CountTokens => Some("beta=true"),
            Self::StreamGenerateContent => Some("alt=sse"),
            Self::Responses | Self::GenerateContent | Self::GeminiCountTokens => None,
        }
    }

    /// Whether the model is named in the request's path instead of its body.
    pub const fn has_model_in_path(self) -> bool {
        matches!(self.protocol(), Protocol::Gemini)
    }
}

/// The operation of a provider's endpoint: one that clients can request too, or `chat/completions`, which only translated
/// requests use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum UpstreamOperation {
    /// An operation that clients can request.
    Client(Operation),
    /// `POST .../chat/completions`
    ChatCompletions,
}

impl UpstreamOperation {
    /// Returns the protocol of the endpoint's requests and answers.
    pub(crate) const fn protocol(self) -> UpstreamProtocol {
        match self {
            Self::Client(operation) => match operation.protocol() {
                Protocol::Messages => UpstreamProtocol::Messages,
                Protocol::Responses => UpstreamProtocol::Responses,
                Protocol::Gemini => UpstreamProtocol::Gemini,
            },
            Self::ChatCompletions => UpstreamProtocol::Chat,
        }
    }

    /// Whether the endpoint only counts tokens and generates no answer.
    pub(crate) const fn is_token_count(self) -> bool {
        match self {
            Self::Client(operation) => operation.is_token_count(),
            Self::ChatCompletions => false,
        }
    }

    /// Whether the endpoint's URL names the model.
    pub(crate) const fn has_model_in_path(self) -> bool {
        match self {
            Self::Client(operation) => operation.has_model_in_path(),
            Self::ChatCompletions => false,
        }
    }

    /// Returns the query that requests to the endpoint usually have.
    pub(crate) const fn usual_query(self) -> Option<&'static str> {
        match self {
            Self::Client(operation) => operation.usual_query(),
            Self::ChatCompletions => None,
        }
    }
}

impl From<Operation> for UpstreamOperation {
    fn from(operation: Operation) -> Self {
        Self::Client(operation)
    }
}

/// The purpose of a request, read from its method and path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RequestTarget {
    /// A request to forward to a provider.
    Forward {
        operation: Operation,
        /// The model's name from the path, decoded and checked; `None` if the body names the model.
        model: Option<String>,
    },
    /// The list of models: `GET` or `HEAD` of `/v1/models` or `/v1beta/models`.
    ListModels,
    /// One model: `GET` or `HEAD` of `/v1/models/{model}` or `/v1beta/models/{model}`.
    ShowModel {
        /// The model's name from the path, decoded and checked.
        model: String,
    },
    /// The usage of the client's own API key: `GET` or `HEAD` of `/web/v1/me`.
    OwnUsage,
    /// The settings for agents that are signed in: `GET` or `HEAD` of `/managed/settings`.
    ManagedSettings,
    /// The part of the client's quota that is spent: `GET` or `HEAD` of `/api/oauth/usage`.
    Spend,
    /// A WebSocket for requests: `GET` of `/v1/responses` with an upgrade.
    Socket,
    /// A check whether weir responds: `HEAD /`, `HEAD /api/hello` or `GET /api/hello`. No API key is needed.
    Hello,
}

/// The reason why a request is refused because of its method and path, which are checked before anything else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestTargetError {
    /// The path is unknown; the status is 404.
    UnknownPath,
    /// The path exists, but not for this method; the status is 405.
    MethodNotAllowed {
        /// The value of the `allow` header.
        allow: &'static str,
    },
    /// The path is `/v1/chat/completions`, which weir no longer serves (docs/interface.md, Versioning).
    ChatCompletionsRemoved,
    /// The model's name in the path is invalid, or one of its parts between slashes is empty, `.` or `..`.
    ModelPathInvalid,
}

/// Determines the purpose of a request. `path` is the path exactly as the client sent it, still percent-encoded, without the
/// query.
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

/// Returns the protocol in which errors are written for a path whose operation is unknown. The path's prefix determines it
/// (docs/interface.md, Errors).
pub(crate) fn error_protocol(path: &str) -> Protocol {
    let gemini_method =
        || path.starts_with("/v1/models/") && (path.contains(':') || path.contains("%3A") || path.contains("%3a"));
    // weir does not offer tuned models, but a client that requests one uses this protocol (docs/interface.md, Gemini-style).
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

/// Accepts GET and HEAD. HEAD is answered like GET, without the body (RFC 9110 section 9.3.2).
fn read_only(method: &str, target: RequestTarget) -> Result<RequestTarget, RequestTargetError> {
    if matches!(method, "GET" | "HEAD") {
        Ok(target)
    } else {
        Err(RequestTargetError::MethodNotAllowed { allow: "GET, HEAD" })
    }
}

/// Whether a path ends with a method of the Gemini-style protocol, such as `:generateContent`. The colon can be written as `%3A`.
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

/// Reads the end of a path. This end has the form `{model}` or `{model}:{method}`. The colon can be written as `%3A`. The model's
/// name is percent-decoded once, and is used only to look up the model. The request to the provider contains the provider's own
/// name for the model. weir percent-encodes that name.
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

/// Checks a model's name from a path before the name is looked up in the catalogue. Slashes and colons are allowed.
fn checked_model(model: &str) -> Result<String, RequestTargetError> {
    let is_step = |part: &str| matches!(part, "" | "." | "..");
    if model.split('/').any(is_step) || !is_plausible(model) {
        return Err(RequestTargetError::ModelPathInvalid);
    }
    Ok(model.to_owned())
}

/// Removes every parameter `key` or `$key`, Google's other spelling, from a query. Returns the remaining query and the removed
/// values, percent-decoded. The values are API keys, which must not reach a log, a metric or the provider. So this function must
/// run before anything else reads the query.
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

/// The maximum length of a model's name, in bytes.
pub(crate) const BYTES_MAX: usize = 128;

/// The rule for model names, for error messages.
pub(crate) const RULE: &str = "1 to 128 bytes of printable text without white space at its ends";

/// Whether a string can be a model's name: it has 1 to [`BYTES_MAX`] bytes, only printable characters, and no white space at its
/// ends. Other strings are refused before they reach a lookup or a log line. When the name is put into a URL, it is
/// percent-encoded.
pub(crate) fn is_plausible(name: &str) -> bool {
    (1..=BYTES_MAX).contains(&name.len()) && name.trim() == name && name.chars().all(is_printable)
}

/// Whether a character is printable. The characters that are not printable are control, format, private-use and unassigned
/// characters, and white space other than the space.
fn is_printable(c: char) -> bool {
    // `escape_debug` escapes these three characters with a backslash, and otherwise only characters that are not printable.
    matches!(c, '"' | '\'' | '\\') || c.is_alphanumeric() || c.escape_debug().len() == 1
}

/// Returns a model's name without the collection that Gemini-style bodies write before it: `gemini-x` for `models/gemini-x` and
/// for `publishers/google/models/gemini-x`. In other protocols, returns `name` unchanged.
pub(crate) fn without_resource(protocol: Protocol, name: &str) -> &str {
    match (protocol, name.rsplit_once("models/")) {
        (Protocol::Gemini, Some(("", model))) => model,
        (Protocol::Gemini, Some((before, model))) if before.ends_with('/') => model,
        _ => name,
    }
}

/// Returns the names to look up in the catalogue for a client's model name, the closest first: the name itself, the name without
/// its context-window mark, and the name without both this mark and its snapshot date.
pub(crate) fn name_candidates(name: &str) -> impl Iterator<Item = &str> {
    let unmarked = without_context_mark(name);
    let further = |other: &str, than: &str| other.len() < than.len();
    let undated = without_date(unmarked);
    let marked = std::iter::once(name);
    let without_mark = further(unmarked, name).then_some(unmarked);
    let without_date = further(undated, unmarked).then_some(undated);
    marked.chain(without_mark).chain(without_date)
}

/// Returns the name without a context-window mark. For example, `claude-opus-5-5[1m]`, Claude Code's name for the model with a
/// context window of a million tokens, becomes `claude-opus-5-5`.
fn without_context_mark(name: &str) -> &str {
    let split = name.strip_suffix(']').and_then(|name| name.rsplit_once('['));
    match split {
        Some((unmarked, mark)) if is_context_mark(mark) => unmarked,
        _ => name,
    }
}

/// Whether `mark` is the text of a context-window mark, such as `1m` or `200k`.
fn is_context_mark(mark: &str) -> bool {
    let count = mark.strip_suffix(['k', 'K', 'm', 'M']).unwrap_or_default();
    !count.is_empty() && count.bytes().all(|byte| byte.is_ascii_digit())
}

/// Returns the name without a snapshot date: `claude-haiku-4-5` for `claude-haiku-4-5-20251001`, `claude-haiku-4-5@20251001` and
/// `claude-haiku-4-5-2025-10-01`.
pub(crate) fn without_date(name: &str) -> &str {
    const FORMS: [(&str, &str); 3] = [("-", "YYYYMMDD"), ("@", "YYYYMMDD"), ("-", "YYYY-MM-DD")];
    let undated = FORMS.iter().find_map(|(before, form)| {
        let (undated, date) = name.split_at_checked(name.len().checked_sub(form.len())?)?;
        let undated = undated.strip_suffix(before)?;
        (!undated.is_empty() && is_date(date, form)).then_some(undated)
    });
    undated.unwrap_or(name)
}

/// Whether `text`, which must be as long as `form`, is a date of this century in that form.
fn is_date(text: &str, form: &str) -> bool {
    let fits = |(c, of): (char, char)| if of == '-' { c == '-' } else { c.is_ascii_digit() };
    if !text.chars().zip(form.chars()).all(fits) {
        return false;
    }
    let digits: String = text.chars().filter(char::is_ascii_digit).collect();
    let part = |from: usize, to: usize| digits.get(from..to).and_then(|part| part.parse::<u16>().ok());
    let is_within =
        |part: Option<u16>, range: std::ops::RangeInclusive<u16>| part.is_some_and(|part| range.contains(&part));
    is_within(part(0, 4), 2000..=2099) && is_within(part(4, 6), 1..=12) && is_within(part(6, 8), 1..=31)
}

#[cfg(test)]
mod model_name_tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_are_told_from_other_texts() {
        for name in [
            "a",
            "claude-opus-4.5",
            "models/gemini-2.5@001",
            "ft:gpt-4_x:org",
            "deepseek-v4-pro[1m]",
            "GLM 4.6 (beta) \"quoted\" 'x' \\ a?b#c%2f;<&>",
            "caf\u{e9}",
            "\u{6a21}\u{578b}-1",
            "\u{1f999}",
            "x".repeat(128).as_str(),
        ] {
            assert!(is_plausible(name), "{name}");
        }
        for name in [
            "",
            " a",
            "a ",
            "a\n",
            "a\tb",
            "a\0b",
            "\u{1b}[31m",
            "\u{7f}",
            "a\u{a0}b",
            "a\u{200b}b",
            "a\u{202e}b",
            "a\u{2028}b",
            "\u{feff}a",
            "a\u{e0041}",
            "a\u{e000}",
            "x".repeat(129).as_str(),
            "\u{e9}".repeat(65).as_str(),
        ] {
            assert!(!is_plausible(name), "{name:?}");
        }
    }

    #[test]
    fn the_collection_of_a_gemini_style_name_is_left_out() {
        for (name, model) in [
            ("models/gemini-x", "gemini-x"),
            ("publishers/google/models/gemini-x", "gemini-x"),
            ("gemini-x", "gemini-x"),
            ("tunedmodels/x", "tunedmodels/x"),
            ("models/", ""),
        ] {
            assert_eq!(without_resource(Protocol::Gemini, name), model, "{name}");
            assert_eq!(without_resource(Protocol::Responses, name), name);
        }
    }

    #[test]
    fn a_name_means_itself_first_then_without_mark_then_without_date() {
        for (name, meant) in [
            ("claude-haiku-4-5", vec![]),
            ("claude-haiku-4-5-20251001", vec!["claude-haiku-4-5"]),
            ("claude-haiku-4-5@20251001", vec!["claude-haiku-4-5"]),
            ("gpt-5.5-2026-04-01", vec!["gpt-5.5"]),
            ("deepseek-v4-pro[1m]", vec!["deepseek-v4-pro"]),
            ("deepseek-v4-pro[1M]", vec!["deepseek-v4-pro"]),
            ("x[200k]", vec!["x"]),
            (
                "claude-haiku-4-5-20251001[1m]",
                vec!["claude-haiku-4-5-20251001", "claude-haiku-4-5"],
            ),
            // Neither a mark of a context window nor a date.
            ("llama[q4]", vec![]),
            ("llama[m]", vec![]),
            ("llama[1m]x", vec![]),
            ("model-12345678", vec![]),
            ("model-20251301", vec![]),
            ("model-20251000", vec![]),
            ("model-2025-1001", vec![]),
            ("model-2025-10-1", vec![]),
            ("model20251001", vec![]),
            ("kimi-k2-0905", vec![]),
            ("-20251001", vec![]),
            ("20251001", vec![]),
        ] {
            let found: Vec<&str> = name_candidates(name).collect();
            assert_eq!(found, [vec![name], meant].concat(), "{name}");
        }
    }

    proptest! {
        #[test]
        fn a_date_or_a_mark_is_taken_off_any_name(
            name in "[ -~\u{e9}\u{6a21}]{0,40}[a-z]", year in 2000..2100, month in 1..13, day in 1..32, thousands in 1..10,
        ) {
            for dated in [
                format!("{name}-{year}{month:02}{day:02}"),
                format!("{name}@{year}{month:02}{day:02}"),
                format!("{name}-{year}-{month:02}-{day:02}"),
            ] {
                prop_assert_eq!(without_date(&dated), name.as_str());
                let marked = format!("{dated}[{thousands}m]");
                let meant: Vec<&str> = name_candidates(&marked).collect();
                prop_assert_eq!(meant, [&marked, &dated, &name]);
            }
        }

        #[test]
        fn no_text_has_more_than_three_meanings_and_each_begins_it(text in any::<String>()) {
            let meant: Vec<&str> = name_candidates(&text).collect();
            prop_assert!((1..=3).contains(&meant.len()));
            prop_assert!(meant.iter().all(|name| text.starts_with(name)));
        }
    }
}
