//! What is asked, as it goes over the wire.

use std::borrow::Cow;

use serde_json::json;

/// The model that the bench asks for, in any protocol; its name orders nothing from the sample provider.
pub(crate) const MODEL: &str = "bench";

/// What is said again and again where a prompt is long.
const WORDS: &str = "The river rises in the hills and falls over a weir that measures what it carries. ";

/// How the answer is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// In one piece.
    Unary,
    /// As a stream.
    Stream,
    /// In one piece, with a prompt of so many bytes.
    Long(usize),
    /// As a stream with a pace of its own. The provider renders each anew, with a name of its own.
    Paced {
        /// How many deltas.
        deltas: usize,
        /// Between two of them, in milliseconds.
        gap_ms: u64,
    },
    /// Not at all: how many tokens the request has is asked, which costs nothing.
    Count,
}

/// The request with a key.
pub(crate) fn request(form: Form, model: &str, key: &str) -> Vec<u8> {
    let asked = "Tell me what a weir does, in a few words.";
    let prompt = match form {
        Form::Unary | Form::Stream | Form::Count => Cow::Borrowed(asked),
        Form::Long(bytes) => Cow::Owned(WORDS.chars().cycle().take(bytes).collect()),
        Form::Paced { deltas, gap_ms } => Cow::Owned(format!("{asked} [[sample: deltas={deltas} gap_ms={gap_ms}]]")),
    };
    let mut body = json!({
        "model": model,
        "system": "You are a terse assistant.",
        "messages": [{ "role": "user", "content": prompt }],
    });
    let mut path = "/v1/messages/count_tokens";
    if form != Form::Count {
        path = "/v1/messages";
        body["max_tokens"] = 4096.into();
        body["stream"] = matches!(form, Form::Stream | Form::Paced { .. }).into();
    }
    let body = body.to_string();
    format!(
        "POST {path} HTTP/1.1\r\nhost: gateway.test\r\nx-api-key: {key}\r\nanthropic-version: 2023-06-01\r\n\
         accept: application/json\r\nuser-agent: weir-passthrough\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

/// The request for the provider itself, which takes any key.
pub(crate) fn direct_request(form: Form) -> Vec<u8> {
    request(form, MODEL, "any-key")
}
