//! The wire protocols of clients and providers, and the formats that they build on: HTTP/1.1, HTTP/2, JSON, server-sent events,
//! WebSocket.

pub mod http1;
pub(crate) mod http2;
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

/// The number of bytes that [`plain_run`] and [`JsonWriter`] examine at a time.
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

/// Like [`plain_run`], for `bytes` shorter than [`WORD_BYTES`]. Adds `before`, the number of bytes that precede `bytes`, to the
/// result.
#[inline(never)]
fn run_to_end(bytes: &[u8], before: usize) -> usize {
    let is_end = |byte: &u8| matches!(byte, b'"' | b'\\');
    before + bytes.iter().position(is_end).unwrap_or(bytes.len())
}

/// Like [`plain_run`], for long `bytes`. Adds `before`, the number of bytes that precede `bytes`, to the result.
#[inline(never)]
fn long_run(bytes: &[u8], before: usize) -> usize {
    before + memchr::memchr2(b'"', b'\\', bytes).unwrap_or(bytes.len())
}

const fn repeated_byte(byte: u8) -> u64 {
    u64::from_le_bytes([byte; WORD_BYTES])
}

/// Finds the first quote or backslash in `word`: the lowest bit that is set in the result is the highest bit of that byte.
/// Returns 0 if there is none. The bits above the lowest one have no meaning
/// (<https://graphics.stanford.edu/~seander/bithacks.html#ZeroInWord>). Bytes of 0x80 and above are ignored, because both
/// characters are ASCII.
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

/// Returns the name of a query parameter from the parameter's `name=value` text. The name is not percent-decoded.
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

/// A writer that appends JSON to a buffer, for hot paths such as the access log. It writes the same bytes as serde, but executes
/// far fewer instructions.
///
/// It is faster because the caller passes each member's name with its punctuation as ready JSON, and because strings that need no
/// escapes are copied. serde writes the rarer kinds of values.
pub(crate) struct JsonWriter<'a>(pub &'a mut Vec<u8>);

impl JsonWriter<'_> {
    /// Appends `json` to the buffer without any change.
    pub(crate) fn put(&mut self, json: &str) {
        self.0.extend_from_slice(json.as_bytes());
    }

    /// Appends `before`, which is JSON, and then `text` as a JSON string.
    ///
    /// # Errors
    /// As for [`Self::value`].
    pub(crate) fn text(&mut self, before: &str, text: &str) -> serde_json::Result<()> {
        if !is_plain(text.as_bytes()) {
            return self.value(before, text);
        }
        self.put(before);
        self.0.push(b'"');
        self.put(text);
        self.0.push(b'"');
        Ok(())
    }

    /// Appends `before`, which is JSON, and then `value` as serde writes it.
    ///
    /// # Errors
    /// The same errors as [`serde_json::to_writer`].
    pub(crate) fn value<T: Serialize + ?Sized>(&mut self, before: &str, value: &T) -> serde_json::Result<()> {
        self.put(before);
        serde_json::to_writer(&mut *self.0, value)
    }

    /// Appends `before`, which is JSON, and then `list` as a JSON array. Appends nothing if the list is empty.
    ///
    /// # Errors
    /// As for [`Self::value`].
    pub(crate) fn list<T: Serialize>(&mut self, before: &str, list: &[T]) -> serde_json::Result<()> {
        if list.is_empty() {
            return Ok(());
        }
        self.value(before, list)
    }

    /// Appends `before`, which is JSON, and then `value` as serde writes it. Appends nothing for `None`.
    ///
    /// # Errors
    /// As for [`Self::value`].
    pub(crate) fn optional<T: Serialize>(&mut self, before: &str, value: Option<&T>) -> serde_json::Result<()> {
        value.map_or(Ok(()), |value| self.value(before, value))
    }
}

/// Whether `text` needs no escapes in a JSON string.
fn is_plain(text: &[u8]) -> bool {
    if let Some(last) = text.last_chunk() {
        // The last 8 bytes may overlap the word before them.
        return text.as_chunks().0.iter().all(is_plain_word) && is_plain_word(last);
    }
    let mut word = [b' '; WORD_BYTES];
    word.iter_mut().zip(text).for_each(|(to, from)| *to = *from);
    is_plain_word(&word)
}

/// Whether no byte of `word` is a control character, a quote or a backslash
/// (<https://graphics.stanford.edu/~seander/bithacks.html>, "Determine if a word has a byte less than n").
fn is_plain_word(word: &[u8; WORD_BYTES]) -> bool {
    let word = u64::from_le_bytes(*word);
    let less_than = |word: u64, bound: u8| word.wrapping_sub(repeated_byte(bound)) & !word & repeated_byte(0x80);
    let quotes = less_than(word ^ repeated_byte(b'"'), 1);
    let backslashes = less_than(word ^ repeated_byte(b'\\'), 1);
    less_than(word, b' ') | quotes | backslashes == 0
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

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

    proptest! {
        #[test]
        fn a_text_is_what_serde_makes_of_it(text in "[ -~\u{0}-\u{20}\"\\\\\u{7f}-\u{a0}\u{20ac}]{0,40}") {
            let mut written = Vec::new();
            JsonWriter(&mut written).text("", &text).expect("a text has a form in JSON");
            prop_assert_eq!(written, serde_json::to_vec(&text).expect("a text has a form in JSON"));
        }

        #[test]
        fn a_text_is_plain_if_none_of_its_bytes_needs_an_escape(text in prop::collection::vec(any::<u8>(), 0..40)) {
            let is_plain_byte = |byte: &u8| *byte >= b' ' && !matches!(byte, b'"' | b'\\');
            prop_assert_eq!(is_plain(&text), text.iter().all(is_plain_byte));
        }
    }
}
