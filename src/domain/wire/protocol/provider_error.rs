//! Reads a provider's error body, converts it into the client's form, and masks parts that resemble the provider's credential.
//! Recognises errors that report a prompt longer than the model's context, because agents react to them by shortening the
//! conversation.

pub(crate) mod credential_mask;
#[cfg(test)]
mod tests;

use std::{borrow::Cow, ops::Range};

use serde_json::Value;

use crate::domain::wire::protocol::{
    ErrorForm, Protocol, gemini, messages, provider_error::credential_mask::CredentialSearch, responses,
};

/// The maximum length of an error body, in bytes. A longer one is treated as empty.
pub(crate) const ERROR_BODY_BYTES_MAX: usize = 64 * 1024;
/// The maximum length of an error's message, in characters. The rest is cut off.
const MESSAGE_CHARS_MAX: usize = 4096;
/// The maximum length of an error's type or code, in characters. The rest is cut off.
const WORD_CHARS_MAX: usize = 128;
/// The maximum number of entries that are read from an error's details.
const DETAILS_MAX: usize = 16;

/// The codes and types with which providers report that the prompt is longer than the model's context. The first one is the code
/// of the Responses protocol.
const OVERFLOW_CODES: [&str; 2] = [OVERFLOW_CODE, "exceed_context_size_error"];
/// The error code that makes clients of the Responses protocol shorten the conversation.
const OVERFLOW_CODE: &str = "context_length_exceeded";

/// The content of a provider's error, independent of the form in which it was sent.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct ErrorContent {
    kind: Option<String>,
    code: Option<String>,
    /// The error's message, at most 4096 characters; `None` if it has none.
    pub message: Option<String>,
    /// All machine-readable values of the error, as text: its code, type and status, and the codes or reasons in its details.
    pub words: Vec<String>,
}

/// Converts a provider's error body into the client's form, with the status that the client gets. An unreadable body becomes one
/// that contains only the status. The message remains the provider's text, so the caller must mask the body with [`redact()`]
/// before or after this call.
pub(crate) fn reshape_error(form: ErrorForm, status: u16, body: &[u8], request_id: &str) -> Vec<u8> {
    let said = read(body).unwrap_or_default();
    let is_overflow = matches!(status, 400 | 413 | 422) && said.is_context_overflow();
    // A numeric code adds nothing to the status.
    let code = said.code.as_deref().filter(|code| !is_number(code));
    let message = said
        .message
        .unwrap_or_else(|| format!("The model's provider answered with status {status}."));
    let shaped = match form {
        ErrorForm::NativeRoot => {
            let number = status.to_string();
            let code = said.code.as_deref().unwrap_or(&number);
            let kind = said.kind.as_deref().unwrap_or(messages::error_type(status));
            messages::root_error_body(code, kind, &message, request_id)
        }
        ErrorForm::Of(Protocol::Messages) => {
            let kind = said.kind.filter(|kind| MESSAGES_TYPES.contains(&kind.as_str()));
            let kind = kind.as_deref().unwrap_or(messages::error_type(status));
            let message = match is_overflow {
                true => overflow_message(&message),
                false => Cow::Borrowed(message.as_str()),
            };
            messages::error_body(kind, &message, code, request_id)
        }
        ErrorForm::Of(Protocol::Responses) => {
            let kind = said.kind.as_deref().unwrap_or(responses::error_type(status));
            let code = match is_overflow {
                true => OVERFLOW_CODE,
                false => code.unwrap_or(responses_code(status)),
            };
            responses::error_body(kind, &message, None, code)
        }
        ErrorForm::Of(Protocol::Gemini) => {
            let name = said
                .kind
                .filter(|kind| kind.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_'));
            gemini::error_body(
                status,
                name.as_deref().unwrap_or(gemini::error_status(status)),
                &message,
            )
        }
    };
    shaped.to_string().into_bytes()
}

/// The error types that clients of the Messages protocol act on. Any other type is replaced by the type for the status.
const MESSAGES_TYPES: [&str; 11] = [
    "invalid_request_error",
    "authentication_error",
    "billing_error",
    "permission_error",
    "not_found_error",
    "conflict_error",
    "request_too_large",
    "rate_limit_error",
    "api_error",
    "timeout_error",
    "overloaded_error",
];

fn responses_code(status: u16) -> &'static str {
    match status {
        401 => "invalid_api_key",
        403 => "permission_denied",
        404 => "not_found",
        413 => "request_too_large",
        429 => "rate_limit_exceeded",
        500.. => "server_error",
        _ => "invalid_request",
    }
}

/// Returns the error status of a body that is an error although it came with a 2xx status. Such a body has no member `content`,
/// `output` or `candidates`. It shows the failure in one of three ways: its `success` is false, its `code` is an HTTP status of
/// 400 or above, or it has an `error`. `None` if the body is not an error or cannot be read.
pub(crate) fn failure_in_success(body: &[u8]) -> Option<u16> {
    let Value::Object(fields) = serde_json::from_slice(body.get(..ERROR_BODY_BYTES_MAX).map_or(body, |_| b"")).ok()?
    else {
        return None;
    };
    if ["content", "output", "candidates"]
        .iter()
        .any(|key| fields.contains_key(*key))
    {
        return None;
    }
    let code = fields
        .get("code")
        .and_then(word_from_value)
        .and_then(|code| code.parse::<u16>().ok());
    let status = code.filter(|code| (400..600).contains(code));
    let failed = fields.get("success") == Some(&Value::Bool(false)) || fields.get("error").is_some_and(is_significant);
    status.or(failed.then_some(502))
}

/// Whether a JSON value is something other than `null`, `false`, zero, or an empty string, array or object.
fn is_significant(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(truth) => *truth,
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::String(text) => !text.is_empty(),
        Value::Array(elements) => !elements.is_empty(),
        Value::Object(fields) => !fields.is_empty(),
    }
}

/// Reads an error body; `None` if it has no content, or is too long for an error. The known forms are: an `error` object; an
/// `error` string next to a `code`; `code` or `type` with `msg` or `message` at the root; the `detail` of FastAPI; each of these
/// as the first element of an array; plain text, as it is or as a JSON string; and any of these as the data of a server-sent
/// event.
pub(crate) fn read(body: &[u8]) -> Option<ErrorContent> {
    if body.len() > ERROR_BODY_BYTES_MAX {
        return None;
    }
    let value = serde_json::from_slice(body).ok().or_else(|| event_data(body));
    let Some(value) = value else {
        return plain_text(body).map(ErrorContent::from_text);
    };
    if let Value::String(text) = &value {
        return plain_text(text.as_bytes()).map(ErrorContent::from_text);
    }
    let root = match &value {
        Value::Array(elements) => elements.first()?,
        other => other,
    };
    let text = |value: &Value, keys: &[&str]| keys.iter().find_map(|key| value.get(*key)).and_then(word_from_value);
    let (kind, code, message, details) = match root.get("error") {
        Some(error @ Value::Object(_)) => (
            text(error, &["type", "status"]),
            text(error, &["code"]),
            text(error, &["message", "msg"]),
            error.get("details"),
        ),
        Some(Value::String(message)) => (None, text(root, &["code"]), Some(message.clone()), None),
        _ => (
            text(root, &["type"]).filter(|kind| kind != "error"),
            text(root, &["code"]),
            text(root, &["message", "msg"]).or_else(|| detail_message(root.get("detail")?)),
            None,
        ),
    };
    let kind = kind.map(|kind| truncate_chars(&kind, WORD_CHARS_MAX));
    let code = code.map(|code| truncate_chars(&code, WORD_CHARS_MAX));
    let words = [&kind, &code].into_iter().flatten().cloned();
    Some(ErrorContent {
        words: words.chain(details.into_iter().flat_map(detail_words)).collect(),
        kind,
        code,
        message: message
            .filter(|message| !message.is_empty())
            .map(|message| truncate_chars(&message, MESSAGE_CHARS_MAX)),
    })
}

impl ErrorContent {
    /// Creates the content of an error whose body is only a message.
    fn from_text(text: &str) -> Self {
        Self {
            message: Some(truncate_chars(text, MESSAGE_CHARS_MAX)),
            ..Self::default()
        }
    }

    /// Whether the error says that the prompt is longer than the model's context.
    pub(crate) fn is_context_overflow(&self) -> bool {
        let has_code = self.words.iter().any(|word| OVERFLOW_CODES.contains(&word.as_str()));
        has_code || self.message.as_deref().is_some_and(is_context_overflow)
    }
}

/// Returns the machine-readable values in the details of an error: `error_code` of Messages, and each `reason` of Google
/// (`google.rpc.ErrorInfo`).
fn detail_words(details: &Value) -> Vec<String> {
    let each = match details {
        Value::Array(elements) => elements.as_slice(),
        one => std::slice::from_ref(one),
    };
    let named = each
        .iter()
        .filter_map(|detail| detail.get("error_code").or_else(|| detail.get("reason")));
    let words = named.filter_map(word_from_value).take(DETAILS_MAX);
    words.map(|found| truncate_chars(&found, WORD_CHARS_MAX)).collect()
}

fn is_number(code: &str) -> bool {
    code.parse::<f64>().is_ok()
}

fn truncate_chars(text: &str, chars_max: usize) -> String {
    text.chars().take(chars_max).collect()
}

/// The maximum number of reports that are read from a validation error of FastAPI.
const REPORTS_MAX: usize = 16;
/// The maximum number of keys and indexes that are read from the location in a validation report.
const STEPS_MAX: usize = 16;
/// Strings that identify a body as markup. A body that begins with `<` is also markup.
const MARKUP: [&str; 5] = ["<html", "<!doctype", "<head", "<body", "<title"];

/// Returns the text of a body that is not JSON, without white space at its ends; `None` for markup, for truncated JSON, and for
/// bytes that are not UTF-8.
fn plain_text(body: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(body).ok()?.trim_start_matches('\u{feff}').trim();
    let is_control = |c: char| c.is_control() && !matches!(c, '\n' | '\r' | '\t');
    let lower = text.to_ascii_lowercase();
    let is_markup = lower.starts_with('<') || MARKUP.iter().any(|mark| lower.contains(mark));
    let is_text = !text.is_empty() && !text.starts_with(['{', '[']) && !text.contains(is_control);
    (is_text && !is_markup).then_some(text)
}

/// Returns the data of a body that is a server-sent event. Providers can send such a body if the client requested a stream.
/// `None` for any other body.
fn event_data(body: &[u8]) -> Option<Value> {
    let text = std::str::from_utf8(body).ok()?.trim_start();
    let is_event = ["data:", "event:"].iter().any(|field| text.starts_with(field));
    let data = text.lines().find_map(|line| line.strip_prefix("data:"))?;
    serde_json::from_str(data).ok().filter(|_| is_event)
}

/// Returns the message of a FastAPI `detail`. The `detail` is a string; a list of validation reports, which become `location:
/// message`; or an object with a message.
fn detail_message(detail: &Value) -> Option<String> {
    match detail {
        Value::String(text) => Some(text.clone()),
        Value::Array(reports) => {
            let said: Vec<String> = reports
                .iter()
                .take(REPORTS_MAX)
                .filter_map(validation_message)
                .collect();
            (!said.is_empty()).then(|| said.join("; "))
        }
        Value::Object(_) => validation_message(detail),
        Value::Null | Value::Bool(_) | Value::Number(_) => None,
    }
}

/// Turns `{"loc":["body","messages",0],"msg":"Field required"}` into `body.messages.0: Field required`.
fn validation_message(report: &Value) -> Option<String> {
    let said = ["msg", "message", "error"]
        .iter()
        .find_map(|key| report.get(*key)?.as_str());
    let said = said.or_else(|| report.as_str()).filter(|said| !said.is_empty())?;
    let steps = report
        .get("loc")
        .and_then(Value::as_array)
        .map_or(&[][..], Vec::as_slice);
    let place: Vec<String> = steps.iter().take(STEPS_MAX).filter_map(word_from_value).collect();
    Some(match place.is_empty() {
        true => said.to_owned(),
        false => format!("{}: {said}", place.join(".")),
    })
}

/// Returns a string, or a number as text; `None` for any other value.
fn word_from_value(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    }
}

/// The minimum length of a provider's secret, in characters. weir masks the secret where a provider repeats it. weir could not
/// mask a shorter secret, because parts of a short secret also occur in unrelated texts.
pub(crate) const CREDENTIAL_CHARS_MIN: usize = 12;
/// The text that replaces a part that resembles the credential.
const MASK: &[u8] = b"***";
/// The byte that replaces each byte of a part that resembles the credential, if the length must not change.
const MASK_BYTE: u8 = b'*';

/// Masks the parts of a provider's error body that resemble `credential`, and returns the masked body; `None` if there is nothing
/// to mask. These parts are the credential itself, any 8 consecutive bytes of it, and shortened echoes such as `sk-ab***wxyz`,
/// whose beginning and end are those of the credential.
pub(crate) fn redact(body: &[u8], credential: &str) -> Option<Vec<u8>> {
    let credential = Some(credential.as_bytes()).filter(|credential| can_be_masked(credential))?;
    let parts = matching_parts(body, &CredentialSearch::new(credential));
    if parts.is_empty() {
        return None;
    }
    let (mut clean, mut end) = (Vec::with_capacity(body.len()), 0);
    for part in parts {
        clean.extend_from_slice(body.get(end..part.start).unwrap_or_default());
        clean.extend_from_slice(MASK);
        end = part.end;
    }
    clean.extend_from_slice(body.get(end..).unwrap_or_default());
    Some(clean)
}

/// Whether a credential is long enough to be masked. Masking a shorter one would remove words from every text.
fn can_be_masked(credential: &[u8]) -> bool {
    credential.len() >= CREDENTIAL_CHARS_MIN
}

/// Masks the parts of `text` that the search finds, without changing the text's length. Returns whether any parts were found.
fn mask_in_place(text: &mut [u8], search: &CredentialSearch<'_>) -> bool {
    let parts = matching_parts(text, search);
    for part in &parts {
        mask_range(text, part.clone());
    }
    !parts.is_empty()
}

/// Masks a part of a text, without changing its length.
fn mask_range(text: &mut [u8], part: Range<usize>) {
    if let Some(part) = text.get_mut(part) {
        part.fill(MASK_BYTE);
    }
}

/// Returns the parts that the search finds, in order. Overlapping and adjacent parts are merged.
fn matching_parts(text: &[u8], search: &CredentialSearch<'_>) -> Vec<Range<usize>> {
    let mut parts = Vec::new();
    search.for_each_match(text, |part| parts.push(part));
    parts.sort_unstable_by_key(|part| part.start);
    parts.dedup_by(|next, part| {
        let touches = next.start <= part.end;
        if touches {
            part.end = part.end.max(next.end);
        }
        touches
    });
    parts
}

/// Phrases, in lower case, with which hosts report that the prompt is longer than the model's context. The comments name the
/// hosts. The tests contain complete messages and name their published sources.
const OVERFLOW_WORDS: [&str; 18] = [
    // OpenAI's chat/completions and the hosts that use the same phrase: DeepSeek, OpenRouter, vLLM. Also Mistral, Together,
    // Fireworks, Ollama, LM Studio, and NVIDIA.
    "context length",
    // OpenAI and others, if the message contains the code.
    "context_length_exceeded",
    // OpenAI's Responses, MiniMax.
    "context window",
    // OpenAI.
    "exceed the configured limit",
    // Anthropic.
    "context limit",
    // Anthropic, Fireworks.
    "prompt is too long",
    // Google.
    "input token count",
    // llama.cpp.
    "context size",
    // Moonshot.
    "model token limit",
    // z.ai, with the code 1261.
    "prompt exceeds max length",
    // DashScope.
    "range of input length should be",
    // Groq, Cerebras.
    "reduce the length of the messages",
    // xAI: the first phrase until 2026, the second one since then.
    "maximum prompt length",
    "input_too_large",
    // vLLM, if the prompt was sent as tokens.
    "maximum model length",
    // Together and other hosts with text-generation-inference.
    "`max_new_tokens` must be <=",
    // Amazon Bedrock.
    "input is too long",
    // GitHub Models.
    "total length of all messages is too long",
];
/// The names of the output limit in messages, in lower case.
const OUTPUT_WORDS: [&str; 4] = [
    "max_tokens",
    "max_completion_tokens",
    "max_output_tokens",
    "maxoutputtokens",
];
/// The names of the prompt in messages, in lower case.
const INPUT_WORDS: [&str; 3] = ["input", "prompt", "messages"];
/// Phrases that follow the number of input tokens in a message that also states the requested output.
const BEHIND_INPUT: [&str; 4] = [" input tokens", " in the messages", " in your prompt", " of text input"];
/// Phrases that precede the number of input tokens in a message that also states the requested output.
const BEFORE_INPUT: [&str; 2] = ["context limit: ", "input token count ("];
/// Phrases that precede the size of the model's context, in tokens, in a message that also states the requested output.
const BEFORE_CONTEXT: [&str; 4] = [
    "maximum context length is ",
    "maximum context length (",
    "context length is only ",
    " > ",
];

/// The phrase in an error message that makes clients of the Messages protocol shorten the conversation.
const OVERFLOW_PHRASE: &str = "prompt is too long";

/// Whether a provider's message says that the prompt is longer than the model's context. The result is false if only the
/// requested output is too large, because a shorter conversation would not help.
pub(crate) fn is_context_overflow(message: &str) -> bool {
    let message = message.to_ascii_lowercase();
    let has = |words: &[&str]| words.iter().any(|words| message.contains(words));
    let is_about_output = has(&OUTPUT_WORDS) && !has(&INPUT_WORDS);
    has(&OVERFLOW_WORDS) && !is_about_output && !is_small_input(&message)
}

/// Returns the message of a context overflow with the phrase that makes clients of the Messages protocol shorten the
/// conversation. If the message does not contain the phrase, the phrase is put before the message.
pub(crate) fn overflow_message(message: &str) -> Cow<'_, str> {
    match message.to_ascii_lowercase().contains(OVERFLOW_PHRASE) {
        true => Cow::Borrowed(message),
        false => Cow::Owned(format!("{OVERFLOW_PHRASE}: {message}")),
    }
}

/// Whether a message states that the input takes less than half of the model's context. In this case, the requested output is too
/// large.
fn is_small_input(message: &str) -> bool {
    let behind = BEHIND_INPUT.iter().find_map(|mark| number_before(message, mark));
    let input = behind.or_else(|| BEFORE_INPUT.iter().find_map(|mark| number_after(message, mark)));
    let context = BEFORE_CONTEXT.iter().find_map(|mark| number_after(message, mark));
    match (input, context) {
        (Some(input), Some(context)) => input < context / 2,
        _ => false,
    }
}

/// Returns the number directly before the first occurrence of `mark`; `None` if there is no such number.
fn number_before(message: &str, mark: &str) -> Option<u64> {
    let (before, _) = message.split_once(mark)?;
    number(before.rsplit(is_no_digit).next()?)
}

/// Returns the number directly after the first occurrence of `mark`; `None` if there is no such number.
fn number_after(message: &str, mark: &str) -> Option<u64> {
    let (_, behind) = message.split_once(mark)?;
    number(behind.split(is_no_digit).next()?)
}

const fn is_no_digit(character: char) -> bool {
    !character.is_ascii_digit() && character != ','
}

/// Reads a number whose digits may be grouped by commas.
fn number(digits: &str) -> Option<u64> {
    digits.replace(',', "").parse().ok()
}

#[cfg(test)]
mod context_overflow_tests {
    use super::*;

    /// Hosts, each with a message about a prompt that is too long, and the place where the message is published: a repository, an
    /// issue in it, or a page of documentation.
    const OVERFLOWS: [(&str, &str, &str); 29] = [
        (
            "OpenAI, Responses",
            "Your input exceeds the context window of this model. Please adjust your input and try again.",
            "badlogic/pi-mono",
        ),
        (
            "OpenAI, chat/completions",
            "This model's maximum context length is 128000 tokens. However, your messages resulted in 204308 tokens. Please reduce the length of the messages.",
            "webtimemachine/wtm2 issue 579",
        ),
        (
            "OpenAI, chat/completions",
            "Input tokens exceed the configured limit of 272000 tokens. Your messages resulted in 311384 tokens. Please reduce the length of the messages.",
            "letta-ai/letta",
        ),
        (
            "OpenAI, with a maximum of the answer",
            "This model's maximum context length is 4097 tokens. However, you requested 4295 tokens (3245 in the messages, 1050 in the completion). Please reduce the length of the messages or completion.",
            "yakGPT/yakGPT issue 13",
        ),
        (
            "Anthropic",
            "prompt is too long: 208310 tokens > 200000 maximum",
            "anthropics/claude-code issue 12186",
        ),
        (
            "Anthropic, with a maximum of the answer",
            "input length and `max_tokens` exceed context limit: 188240 + 21333 > 200000, decrease input length or `max_tokens` and try again",
            "badlogic/pi-mono",
        ),
        (
            "Google",
            "The input token count (1196265) exceeds the maximum number of tokens allowed (1048575).",
            "badlogic/pi-mono",
        ),
        (
            "DeepSeek",
            "This model's maximum context length is 131072 tokens. However, you requested 139162 tokens (130970 in the messages, 8192 in the completion). Please reduce the length of the messages or completion.",
            "zebbern/Devonz issue 9",
        ),
        (
            "Moonshot",
            "Invalid request: Your request exceeded model token limit: 262144 (requested: 269030)",
            "MoonshotAI/kimi-cli issue 2011",
        ),
        ("z.ai", "Prompt exceeds max length", "code 1261, as clients test it"),
        (
            "MiniMax",
            "invalid params, context window exceeds limit",
            "badlogic/pi-mono",
        ),
        (
            "DashScope",
            "<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, 258048]",
            "alibabacloud.com/help/model-studio/error-code",
        ),
        (
            "Groq",
            "Please reduce the length of the messages or completion.",
            "OpenHands/OpenHands issue 1902",
        ),
        (
            "Cerebras",
            "Please reduce the length of the messages or completion. Current length is 69553 while limit is 65536",
            "anomalyco/opencode issue 1551",
        ),
        (
            "Mistral",
            "Prompt contains 66385 tokens, too large for model with 32768 maximum context length",
            "portkey.ai/error-library",
        ),
        (
            "xAI",
            "This model's maximum prompt length is 131072 but the request contains 136973 tokens.",
            "cline/cline issue 3120",
        ),
        (
            "xAI",
            "Failed to start sampling: [input_too_large] Current message (1149677 tokens) exceeds budget (975424 tokens)",
            "UKGovernmentBEIS/inspect_ai pull request 5208",
        ),
        (
            "Together",
            "The input (250000 tokens) is longer than the model's context length (200000 tokens).",
            "badlogic/pi-mono",
        ),
        (
            "Together, older models",
            "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4097. Given: 80125 `inputs` tokens and 4096 `max_new_tokens`",
            "BerriAI/litellm issue 4934",
        ),
        (
            "Fireworks",
            "The prompt is too long: 262377, model maximum context length: 262143",
            "langchain-ai/langchain",
        ),
        (
            "OpenRouter",
            "This endpoint's maximum context length is 131072 tokens. However, you requested about 145655 tokens (139655 of text input, 6000 in the output). Please reduce the length of either one, or use the \"middle-out\" transform to compress your prompt automatically.",
            "badlogic/pi-mono",
        ),
        (
            "vLLM",
            "You passed 33537 input tokens and requested 32000 output tokens. However, the model's context length is only 65536 tokens, resulting in a maximum input length of 33536 tokens. Please reduce the length of the input messages.",
            "vllm-project/vllm",
        ),
        (
            "vLLM, with a maximum of the answer",
            "'max_tokens' or 'max_completion_tokens' is too large: 16384. This model's maximum context length is 65536 tokens and your request has 52189 input tokens (16384 > 65536 - 52189).",
            "vllm-project/vllm",
        ),
        (
            "vLLM, of tokens",
            "The decoder prompt (length 5951) is longer than the maximum model length of 4096. Make sure that `max_model_len` is no smaller than the number of text tokens.",
            "vllm-project/vllm",
        ),
        (
            "Ollama",
            "prompt too long; exceeded max context length by 15935 tokens",
            "badlogic/pi-mono",
        ),
        (
            "llama.cpp",
            "the request exceeds the available context size, try increasing it",
            "ggml-org/llama.cpp",
        ),
        (
            "LM Studio",
            "The number of tokens to keep from the initial prompt is greater than the context length. Try to load the model with a larger context length, or provide a shorter input",
            "lmstudio-ai/lmstudio-bug-tracker issue 2205",
        ),
        (
            "LM Studio",
            "Trying to keep the first 111490 tokens when context the overflows. However, the model is loaded with context length of only 32768 tokens, which is not enough. Try to load the model with a larger context length, or provide a shorter input.",
            "lmstudio-ai/lmstudio-bug-tracker issue 546",
        ),
        (
            "GitHub Models",
            "The total length of all messages is too long.",
            "symfony/ai",
        ),
    ];

    /// Messages about an output limit that is too large for any prompt, and about rate limits.
    const OTHERS: [(&str, &str); 10] = [
        (
            "OpenAI",
            "max_tokens is too large: 100000. This model supports at most 16384 completion tokens, whereas you provided 100000.",
        ),
        (
            "Anthropic",
            "max_tokens: 200000 > 64000, which is the maximum allowed number of output tokens for claude-sonnet-4-5",
        ),
        (
            "Anthropic, small input",
            "input length and `max_tokens` exceed context limit: 1000 + 200000 > 200000, decrease input length or `max_tokens` and try again",
        ),
        (
            "DeepSeek",
            "Invalid max_tokens value, the valid range of max_tokens is [1, 8192]",
        ),
        (
            "Groq",
            "`max_tokens` must be less than or equal to `8192`, the maximum value for `max_tokens` is less than the `context_window` for this model",
        ),
        (
            "Groq, rate",
            "Request too large for model `llama-3.3-70b-versatile` in organization `org_1` service tier `on_demand` on tokens per minute (TPM): Limit 6000, Requested 14810, please reduce your message size and try again.",
        ),
        (
            "vLLM",
            "'max_tokens' or 'max_completion_tokens' is too large: 256000. This model's maximum context length is 262144 tokens and your request has 20354 input tokens (256000 > 262144 - 20354).",
        ),
        (
            "Together",
            "Failed to start generation: The input token count (11) plus the requested output count (1048573) exceeds the model's maximum context length (1048576)",
        ),
        ("DashScope", "Range of max_tokens should be [1, 8192]"),
        ("any", "max_tokens (200000) must not exceed the model's context window"),
    ];

    #[test]
    fn a_prompt_that_is_too_long_is_recognized_in_the_words_of_every_host() {
        for (host, message, source) in OVERFLOWS {
            assert!(is_context_overflow(message), "{host}, by {source}: {message}");
            let shown = overflow_message(message);
            let count = shown.to_ascii_lowercase().matches(OVERFLOW_PHRASE).count();
            assert!(count == 1 && shown.ends_with(message), "{shown}");
        }
    }

    #[test]
    fn a_maximum_of_the_answer_alone_makes_no_agent_shorten_the_conversation() {
        for (host, message) in OTHERS {
            assert!(!is_context_overflow(message), "{host}: {message}");
        }
    }

    #[test]
    fn every_word_is_needed() {
        for word in OVERFLOW_WORDS {
            let has_word = |message: &&str| message.to_ascii_lowercase().contains(word);
            let count = OVERFLOWS
                .iter()
                .map(|(_, message, _)| message)
                .filter(|message| has_word(message));
            let is_needed = count.count() > 0 || ["context_length_exceeded", "input is too long"].contains(&word);
            assert!(is_needed, "{word}");
        }
    }

    #[test]
    fn numbers_with_and_without_commas_are_read() {
        assert_eq!(number_before("it has 1,234 input tokens", " input tokens"), Some(1_234));
        assert_eq!(
            number_after("context limit: 200000 + 1", "context limit: "),
            Some(200_000)
        );
        for text in ["many input tokens", "input tokens", " input tokens"] {
            assert_eq!(number_before(text, " input tokens"), None, "{text}");
        }
        assert_eq!(number_after("99999999999999999999999 > 1", ""), None);
    }
}
