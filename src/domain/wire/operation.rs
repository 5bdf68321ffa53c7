//! The requests that clients may send, read from method and path (docs/interface.md, Endpoints).

#[cfg(test)]
mod tests;

use percent_encoding::percent_decode_str;
use serde::{Deserialize, Serialize};

use crate::domain::wire::protocol::Protocol;

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
    if model.split('/').any(is_step) || !is_plausible(model) {
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

/// The maximum length of a name, in bytes.
pub(crate) const BYTES_MAX: usize = 128;

/// The rule for names, for messages.
pub(crate) const RULE: &str = "1 to 128 bytes of printable text without white space at its ends";

/// Whether a text can be a model's name: 1 to [`BYTES_MAX`] bytes, each character printable, no white space at either end.
/// Other texts are refused before they reach a lookup or a log line. URLs percent-encode the name where they are built.
pub(crate) fn is_plausible(name: &str) -> bool {
    (1..=BYTES_MAX).contains(&name.len()) && name.trim() == name && name.chars().all(is_printable)
}

/// False for control, format, private-use and unassigned characters, and for white space other than the space.
fn is_printable(c: char) -> bool {
    // `escape_debug` escapes the first three with a backslash, and everything that is not printable.
    matches!(c, '"' | '\'' | '\\') || c.is_alphanumeric() || c.escape_debug().len() == 1
}

/// Removes the collection that Gemini-style bodies write before a model's name: `models/gemini-x`,
/// `publishers/google/models/gemini-x`.
pub(crate) fn without_resource(protocol: Protocol, name: &str) -> &str {
    match (protocol, name.rsplit_once("models/")) {
        (Protocol::Gemini, Some(("", model))) => model,
        (Protocol::Gemini, Some((before, model))) if before.ends_with('/') => model,
        _ => name,
    }
}

/// The names of the catalogue that a client's name may mean, the closest first: the name itself, then without the mark of a
/// context window, then without the date of a snapshot too.
pub(crate) fn name_candidates(name: &str) -> impl Iterator<Item = &str> {
    let unmarked = without_context_mark(name);
    let further = |other: &str, than: &str| other.len() < than.len();
    let undated = without_date(unmarked);
    let marked = std::iter::once(name);
    let without_mark = further(unmarked, name).then_some(unmarked);
    let without_date = further(undated, unmarked).then_some(undated);
    marked.chain(without_mark).chain(without_date)
}

/// Turns `claude-opus-5-5[1m]`, Claude Code's name for the model with a context window of a million tokens, into
/// `claude-opus-5-5`.
fn without_context_mark(name: &str) -> &str {
    let split = name.strip_suffix(']').and_then(|name| name.rsplit_once('['));
    match split {
        Some((unmarked, mark)) if is_context_mark(mark) => unmarked,
        _ => name,
    }
}

/// Whether a mark is like `1m` or `200k`.
fn is_context_mark(mark: &str) -> bool {
    let count = mark.strip_suffix(['k', 'K', 'm', 'M']).unwrap_or_default();
    !count.is_empty() && count.bytes().all(|byte| byte.is_ascii_digit())
}

/// Turns `claude-haiku-4-5-20251001`, `claude-haiku-4-5@20251001` and `claude-haiku-4-5-2025-10-01` into `claude-haiku-4-5`.
pub(crate) fn without_date(name: &str) -> &str {
    const FORMS: [(&str, &str); 3] = [("-", "YYYYMMDD"), ("@", "YYYYMMDD"), ("-", "YYYY-MM-DD")];
    let undated = FORMS.iter().find_map(|(before, form)| {
        let (undated, date) = name.split_at_checked(name.len().checked_sub(form.len())?)?;
        let undated = undated.strip_suffix(before)?;
        (!undated.is_empty() && is_date(date, form)).then_some(undated)
    });
    undated.unwrap_or(name)
}

/// Whether a text, which is as long as `form`, is a day of this century in that form.
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
            // Neither a mark of a context window nor a day.
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
