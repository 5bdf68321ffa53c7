//! The wire protocols of clients and providers, and the formats that they build on: HTTP/1.1, HTTP/2, JSON, server-sent events,
//! WebSocket.

pub(crate) mod http1;
pub(crate) mod http2;
pub(crate) mod json_array;
pub(crate) mod json_pick;
pub(crate) mod json_scan;
mod json_skip;
pub(crate) mod operation;
pub(crate) mod protocol;
pub(crate) mod provider_state;
pub mod proxy_protocol;
pub(crate) mod responses_socket;
pub(crate) mod session_hint;
pub(crate) mod sse;
pub(crate) mod tokens;
pub(crate) mod usage;
pub mod websocket;

use percent_encoding::percent_decode_str;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A wire protocol that clients use to send requests to weir (docs/interface.md, Endpoints).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
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
    /// All protocols.
    pub(crate) const ALL: [Self; 3] = [Self::Messages, Self::Responses, Self::Gemini];

    /// Returns the protocol's name, which is its label in logs and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Messages => "messages",
            Self::Responses => "responses",
            Self::Gemini => "gemini",
        }
    }

    /// Returns the name of the response header in which clients of the protocol expect the request's id.
    pub const fn request_id_header(self) -> &'static str {
        match self {
            Self::Messages => "request-id",
            Self::Responses | Self::Gemini => "x-request-id",
        }
    }
}

/// A protocol that weir speaks to providers: one of its clients' protocols, or `chat/completions`, which clients cannot use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum UpstreamProtocol {
    /// The Messages protocol.
    Messages,
    /// The Responses protocol.
    Responses,
    /// The Gemini-style GenerateContent protocol.
    Gemini,
    /// The `chat/completions` protocol.
    Chat,
}

impl UpstreamProtocol {
    /// The label in logs, metrics and headers.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Messages => "messages",
            Self::Responses => "responses",
            Self::Gemini => "gemini",
            Self::Chat => "chat",
        }
    }
}

impl From<Protocol> for UpstreamProtocol {
    fn from(protocol: Protocol) -> Self {
        match protocol {
            Protocol::Messages => Self::Messages,
            Protocol::Responses => Self::Responses,
            Protocol::Gemini => Self::Gemini,
        }
    }
}

/// The number of bytes that [`plain_run`] examines at a time at the start of a string.
const WORD_BYTES: usize = 8;
/// The number of words that [`plain_run`] examines itself. For longer strings it uses `memchr`, which is faster but slow to
/// start.
const SHORT_WORDS: usize = 4;

/// Returns the number of bytes before the first quote or backslash; all bytes if there is none.
#[inline]
fn plain_run(bytes: &[u8]) -> usize {
    let mut rest = bytes;
    for words in 0..SHORT_WORDS {
        let Some((word, behind)) = rest.split_first_chunk() else {
            return run_to_end(rest, words * WORD_BYTES);
        };
        let ends = end_bits(u64::from_le_bytes(*word));
        if ends != 0 {
            return words * WORD_BYTES + (ends.trailing_zeros() / u8::BITS) as usize;
        }
        rest = behind;
    }
    long_run(rest, SHORT_WORDS * WORD_BYTES)
}

/// Like [`plain_run`], for `bytes` shorter than a word. `before` is the number of bytes before them, and is added to the result.
#[inline(never)]
fn run_to_end(bytes: &[u8], before: usize) -> usize {
    let is_end = |byte: &u8| matches!(byte, b'"' | b'\\');
    before + bytes.iter().position(is_end).unwrap_or(bytes.len())
}

/// Like [`plain_run`], for long `bytes`. `before` is the number of bytes before them, and is added to the result.
#[inline(never)]
fn long_run(bytes: &[u8], before: usize) -> usize {
    before + memchr::memchr2(b'"', b'\\', bytes).unwrap_or(bytes.len())
}

const fn repeated_byte(byte: u8) -> u64 {
    u64::from_le_bytes([byte; WORD_BYTES])
}

/// Returns a word in which the lowest bit set is the highest bit of the first byte that is a quote or a backslash; 0 if there is
/// none. Bits above that one have no meaning (<https://graphics.stanford.edu/~seander/bithacks.html#ZeroInWord>). Quote and
/// backslash are ASCII characters, so the same mask serves for both: the bytes of `word` below 0x80.
const fn end_bits(word: u64) -> u64 {
    let quote = (word ^ repeated_byte(b'"')).wrapping_sub(repeated_byte(1));
    let backslash = (word ^ repeated_byte(b'\\')).wrapping_sub(repeated_byte(1));
    (quote | backslash) & !word & repeated_byte(0x80)
}

/// Returns the percent-decoded values of all query parameters that are named `name`.
fn query_values(query: &str, name: &str) -> Vec<String> {
    query
        .split('&')
        .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
        .filter(|(found, _)| decode_query_text(found) == name)
        .map(|(_, value)| decode_query_text(value))
        .collect()
}

/// Returns the name of a query parameter, still percent-encoded, from the parameter's `name=value` text.
pub(in crate::domain) fn parameter_name(pair: &str) -> &str {
    pair.split_once('=').map_or(pair, |(name, _)| name)
}

pub(in crate::domain) fn decode_query_text(text: &str) -> String {
    percent_decode_str(&text.replace('+', " "))
        .decode_utf8_lossy()
        .into_owned()
}

/// Returns the percent-decoded value of the query parameter `name`; `None` if the query does not contain it. The parameter is
/// allowed to occur more than once with the same value.
///
/// # Errors
/// The parameter occurs with different values. The error is a message for the client.
pub(crate) fn query_value(query: Option<&str>, name: &str) -> Result<Option<String>, String> {
    let mut values = query_values(query.unwrap_or_default(), name);
    let last = values.pop();
    if values.iter().any(|other| Some(other) != last.as_ref()) {
        return Err(format!(
            "the query parameter `{name}` occurs with different values: give it once"
        ));
    }
    Ok(last)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_run_ends_where_the_first_quote_or_backslash_stands(
            before in prop::collection::vec(any::<u8>(), 0..200),
            behind in "[\"\\\\!#\\[\\]a\u{80}\u{a2}\u{dc}]{0,20}",
        ) {
            let bytes = [before.as_slice(), behind.as_bytes()].concat();
            let end = bytes.iter().position(|byte| matches!(byte, b'"' | b'\\')).unwrap_or(bytes.len());
            prop_assert_eq!(plain_run(&bytes), end);
        }
    }

    #[test]
    fn a_value_is_found_in_any_spelling_and_is_one() {
        assert_eq!(query_value(None, "a"), Ok(None));
        assert_eq!(query_value(Some("b=1&&aa=2"), "a"), Ok(None));
        assert_eq!(query_value(Some("b=1&%61=x%2Fy+z"), "a"), Ok(Some("x/y z".to_owned())));
        assert_eq!(query_value(Some("a"), "a"), Ok(Some(String::new())));
        assert_eq!(query_value(Some("a=1&a=1"), "a"), Ok(Some("1".to_owned())));
        assert!(query_value(Some("a=1&a=2"), "a").is_err());
        assert!(query_value(Some("a=1&b=3&a"), "a").is_err());
    }
}
