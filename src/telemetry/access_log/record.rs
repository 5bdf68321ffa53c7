//! The record of a finished request, from which its log line and its metrics are made.

use serde::ser::{Error, SerializeMap};
use serde::{Serialize, Serializer};

use crate::domain::wire::usage::Usage;

/// One finished request. It has no field for a key, a prompt, an answer or a client's address, on purpose.
///
/// The fields of type `&'static str` come from closed sets (`as_str` of an enum), so they are safe as metric labels;
/// of the others only [`RequestRecord::model`] and [`RequestRecord::provider`] are, and only if the catalogue has them.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct RequestRecord {
    /// When the request arrived, in milliseconds since the Unix epoch; `time` in the line, as RFC 3339 in UTC.
    #[serde(rename = "time", serialize_with = "rfc3339")]
    pub time_unix_ms: i64,
    /// weir's own identifier of the request, also sent to the client.
    pub request_id: String,
    /// The identifier (never the text) of the key, once it was found.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_id: Option<String>,
    /// The account that the key belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub account: Option<String>,
    /// `Protocol::as_str`, if the path belongs to one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<&'static str>,
    /// `Operation` in snake case, if the path names one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operation: Option<&'static str>,
    /// The model name that the client sent; only if it has the form of one, so that no prompt slips in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model_asked: Option<String>,
    /// The catalogue model that served the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The provider that the request was sent to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// The HTTP status sent to the client; 0 when it left before one was sent.
    pub status: u16,
    /// `Outcome::as_str`: how the request ended.
    pub outcome: &'static str,
    /// `Refusal::reason`, if weir itself said no.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refusal: Option<&'static str>,
    /// Whether the answer was a stream.
    pub stream: bool,
    /// From arrival to the first generated content, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttft_ms: Option<u64>,
    /// From arrival to the end of the answer, in milliseconds.
    pub latency_ms: u64,
    /// How often a provider was asked: 0 for weir's own refusals, 2 after one retry.
    pub attempts: u32,
    /// Bytes of the request body as received.
    pub request_bytes: u64,
    /// Bytes of the response body as sent.
    pub response_bytes: u64,
    /// The tokens that the provider reported.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "counts")]
    pub usage: Option<Usage>,
    /// Why the model stopped, in the protocol's word (`finish_reason::word`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finish_reason: Option<&'static str>,
    /// The HTTP version that the client spoke: 1 or 2; 0 if unknown.
    #[serde(rename = "http")]
    pub client_version: u8,
}

fn rfc3339<S: Serializer>(unix_ms: &i64, out: S) -> Result<S::Ok, S::Error> {
    let time = jiff::Timestamp::from_millisecond(*unix_ms).map_err(S::Error::custom)?;
    out.collect_str(&format_args!("{time:.3}"))
}

/// Only the counts that are not zero: most requests have three.
fn counts<S: Serializer>(usage: &Option<Usage>, out: S) -> Result<S::Ok, S::Error> {
    let mut map = out.serialize_map(None)?;
    for (name, count) in usage.iter().flat_map(token_counts).filter(|(_, count)| *count > 0) {
        map.serialize_entry(name, &count)?;
    }
    map.end()
}

/// Every count of a usage under its name, for the log and the metrics.
pub(crate) fn token_counts(usage: &Usage) -> [(&'static str, u64); 12] {
    [
        ("input_uncached", usage.input_uncached),
        ("cache_read", usage.cache_read),
        ("cache_write_short", usage.cache_write_short),
        ("cache_write_long", usage.cache_write_long),
        ("output_text", usage.output_text),
        ("output_reasoning", usage.output_reasoning),
        ("tool_input", usage.tool_input),
        ("web_searches", usage.web_searches),
        ("web_fetches", usage.web_fetches),
        ("file_searches", usage.file_searches),
        ("code_interpreter_calls", usage.code_interpreter_calls),
        ("image_generations", usage.image_generations),
    ]
}
