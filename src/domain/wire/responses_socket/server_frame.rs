//! Turns an answer into the frames that the client gets: the events of a stream, and errors with their status.

#[cfg(test)]
mod tests;

use std::borrow::Cow;

use bytes::BytesMut;
use http::HeaderMap;
use serde_json::{Value, json};

use crate::domain::wire::{
    json_scan::unescaped,
    json_skip::{skip_space, skip_value, split_key, without_end},
    protocol::{InBandError, responses},
    sse::{EventSink, SseFramer},
    websocket::write_text_header,
};

/// The maximum length of an event, in bytes. Codex accepts no larger frame.
pub(crate) const EVENT_BYTES_MAX: usize = 16 * 1024 * 1024;

/// The `retry-after`, in seconds, for a rate limit that the provider reports in an event of a stream. Such an event has no
/// `retry-after` of its own.
const RATE_LIMIT_WAIT_SECONDS: u32 = 1;

/// The headers of an error answer that are copied to the error's frame. Names that end with `-` are prefixes.
const FRAME_HEADERS: [&str; 7] = [
    "retry-after",
    "retry-after-ms",
    "x-should-retry",
    "x-request-id",
    "x-weir-request-id",
    "x-ratelimit-",
    "x-codex-",
];

/// The error for an event of the answer that is longer than [`EVENT_BYTES_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EventTooLong;

/// A splitter that returns the data of each event in a stream of server-sent events, however the stream is split into pieces.
#[derive(Debug)]
pub(crate) struct EventCutter {
    framer: SseFramer,
    event: CutEvent,
}

/// The data of one event.
#[derive(Debug, Default)]
struct CutEvent {
    bytes: Vec<u8>,
    is_complete: bool,
}

impl EventSink for CutEvent {
    fn on_data(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    fn on_event_end(&mut self, _name: &[u8]) {
        self.is_complete = true;
    }
}

impl EventCutter {
    /// Creates a splitter at the start of an answer.
    pub(crate) fn new() -> Self {
        Self {
            framer: SseFramer::new(),
            event: CutEvent::default(),
        }
    }

    /// Reads a piece of the answer. Calls `on_event` with the data of each event that ends in this piece. Bytes that are not
    /// UTF-8 are replaced, because a client that got them would have to close the socket.
    ///
    /// # Errors
    /// An event is longer than [`EVENT_BYTES_MAX`].
    pub(crate) fn push(&mut self, piece: &[u8], mut on_event: impl FnMut(&[u8])) -> Result<(), EventTooLong> {
        let mut rest = piece;
        while !rest.is_empty() {
            let used = self.framer.push_event(rest, &mut self.event);
            rest = rest.get(used..).unwrap_or_default();
            if self.event.bytes.len() > EVENT_BYTES_MAX {
                return Err(EventTooLong);
            }
            if std::mem::take(&mut self.event.is_complete) {
                on_event(String::from_utf8_lossy(&self.event.bytes).as_bytes());
                self.event.bytes.clear();
            }
            if used == 0 {
                break;
            }
        }
        Ok(())
    }
}

/// The kinds of events that weir distinguishes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServerEventKind {
    /// `response.completed`
    Completed,
    /// `response.failed`
    Failed,
    /// `response.incomplete`
    Incomplete,
    /// `error`
    Error,
    /// `response.output_item.done`
    ItemDone,
    /// Any other event.
    Progress,
}

impl ServerEventKind {
    /// Returns the kind of an event; `None` if the data is not an event of the protocol (for example, `[DONE]`) or is incomplete.
    pub(crate) fn from_data(data: &[u8]) -> Option<Self> {
        if !skip_space(skip_value(skip_space(data), 0)?).is_empty() {
            return None;
        }
        let kind = unescaped(member(data, b"type")?)?;
        Some(match kind.as_ref() {
            "response.completed" => Self::Completed,
            "response.failed" => Self::Failed,
            "response.incomplete" => Self::Incomplete,
            "error" => Self::Error,
            "response.output_item.done" => Self::ItemDone,
            _ => Self::Progress,
        })
    }
}

/// Appends an event as a text frame. An event of a named lane gets the lane's `stream_id`.
pub(crate) fn write_event(out: &mut BytesMut, data: &[u8], stream_id: Option<&str>) {
    let data = skip_space(data);
    let Some((stream_id, inside)) = stream_id.zip(data.strip_prefix(b"{")) else {
        return write_text(out, &[data]);
    };
    let lane = format!(r#"{{"stream_id":"{stream_id}","#);
    write_text(out, &[lane.as_bytes(), inside]);
}

/// Appends a text frame whose payload consists of `parts`.
pub(crate) fn write_text(out: &mut BytesMut, parts: &[&[u8]]) {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    write_text_header(out, length as u64, None);
    for part in parts {
        out.extend_from_slice(part);
    }
}

/// An error in the form in which a client gets it in a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SocketError {
    /// The HTTP status of the error.
    pub status: u16,
    /// The error object as JSON.
    error: Vec<u8>,
    /// The headers as the members of a JSON object without its braces; empty if there are none.
    headers: String,
}

impl SocketError {
    /// Creates an error that weir itself reports on a socket.
    pub(crate) fn new(status: u16, code: &str, message: &str) -> Self {
        let error = json!({ "type": responses::error_type(status), "code": code, "message": message, "param": null });
        Self {
            status,
            error: error.to_string().into_bytes(),
            headers: String::new(),
        }
    }

    /// Sets the time in seconds that the client waits before it tries again. Codex gives up its turn after a 429 without this
    /// time.
    pub(crate) fn retry_after(mut self, seconds: u32) -> Self {
        self.headers = format!(r#""retry-after":"{seconds}""#);
        self
    }

    /// Converts an error answer. The error object is not changed.
    pub(crate) fn from_answer(status: u16, headers: &HeaderMap, body: &[u8]) -> Self {
        let error = match member(body, b"error") {
            Some(object @ [b'{', ..]) => String::from_utf8_lossy(object).into_owned().into_bytes(),
            other => {
                let text = other.and_then(unescaped);
                let text = text.or_else(|| member(body, b"message").and_then(unescaped));
                let message = text.unwrap_or_else(|| Cow::Owned(format!("The request failed with status {status}.")));
                return Self {
                    headers: frame_headers(headers),
                    ..Self::new(status, "error", &message)
                };
            }
        };
        Self {
            status,
            error,
            headers: frame_headers(headers),
        }
    }

    /// Converts an `error` event of a stream. If the event contains no status, the error's type or code determines the status. A
    /// rate limit that ends by itself gets a `retry-after`, because Codex gives up its turn after a 429 without one.
    pub(crate) fn from_event(data: &[u8]) -> Self {
        let object = member(data, b"error").filter(|value| value.starts_with(b"{"));
        let source = object.unwrap_or(data);
        let text = |name: &[u8]| member(source, name).and_then(unescaped);
        let named: Option<u16> =
            member(data, b"status").and_then(|value| std::str::from_utf8(value).ok()?.parse().ok());
        let kind = object
            .and_then(|_| text(b"type"))
            .map_or_else(String::new, Cow::into_owned);
        let code = text(b"code").map(Cow::into_owned);
        let is_quota = [code.as_deref(), Some(kind.as_str())].contains(&Some("insufficient_quota"));
        let status = named.filter(|status| (400..600).contains(status));
        let status = status.unwrap_or_else(|| InBandError { kind, code }.status());
        let error = object.map_or_else(|| flat_error(status, data), <[u8]>::to_vec);
        let converted = Self {
            status,
            error,
            headers: String::new(),
        };
        match status == 429 && !is_quota {
            true => converted.retry_after(RATE_LIMIT_WAIT_SECONDS),
            false => converted,
        }
    }

    /// Appends the error as a text frame of a lane.
    pub(crate) fn write(&self, out: &mut BytesMut, stream_id: Option<&str>) {
        let lane = stream_id.map_or_else(String::new, |id| format!(r#""stream_id":"{id}","#));
        let head = format!(r#"{{"type":"error","status":{},{lane}"error":"#, self.status);
        let tail = match self.headers.as_str() {
            "" => "}".to_owned(),
            headers => format!(r#","headers":{{{headers}}}}}"#),
        };
        write_text(out, &[head.as_bytes(), &self.error, tail.as_bytes()]);
    }
}

/// Builds the error object for an `error` event that contains no `error` object. The fields of the error are members of the event
/// itself.
pub(super) fn flat_error(status: u16, data: &[u8]) -> Vec<u8> {
    let field = |name: &[u8]| {
        let value = member(data, name).and_then(unescaped);
        value.map_or(Value::Null, |text| Value::String(text.into_owned()))
    };
    json!({
        "type": responses::error_type(status),
        "code": field(b"code"),
        "message": field(b"message"),
        "param": field(b"param"),
    })
    .to_string()
    .into_bytes()
}

/// Whether the header `name` is copied when an error answer becomes a frame, and when an error frame becomes an answer. `name`
/// must be in lower case.
pub(super) fn is_frame_header(name: &str) -> bool {
    FRAME_HEADERS.iter().any(|listed| match listed.ends_with('-') {
        true => name.starts_with(*listed),
        false => name == *listed,
    })
}

/// Returns the headers that are copied to a frame, as the members of a JSON object without its braces.
fn frame_headers(headers: &HeaderMap) -> String {
    let mut repeated: Vec<String> = Vec::new();
    for name in headers.keys().filter(|name| is_frame_header(name.as_str())) {
        if let Some(value) = headers.get(name).and_then(|value| value.to_str().ok()) {
            repeated.push(format!("\"{name}\":{}", Value::from(value)));
        }
    }
    repeated.join(",")
}

/// The response that a terminal event completes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CompletedResponse {
    /// The id by which a client can continue the response.
    pub id: String,
    /// The items of the output, as the elements of a JSON array without its brackets.
    pub output: Vec<u8>,
}

impl CompletedResponse {
    /// Reads a `response.completed` event. Omits reasoning whose content only the provider has. `items` are the items that
    /// earlier events of the answer have reported; they are used if the event itself has none. `None` if the response has no id.
    pub(crate) fn from_event(data: &[u8], items: &[u8]) -> Option<Self> {
        let response = member(data, b"response")?;
        let id = unescaped(member(response, b"id")?)?.into_owned();
        let output = member(response, b"output").and_then(list_items).unwrap_or_default();
        let kept: Vec<&[u8]> = output.into_iter().filter(|item| is_replayable(item)).collect();
        let output = match kept.is_empty() {
            true => items.to_vec(),
            false => kept.join(&b','),
        };
        Some(Self { id, output })
    }
}

/// Returns the item of a `response.output_item.done` event; `None` for reasoning whose content only the provider has.
pub(crate) fn finished_item(data: &[u8]) -> Option<&[u8]> {
    member(data, b"item").filter(|item| is_replayable(item))
}

/// Whether an item can be sent to a provider that has not stored it.
fn is_replayable(item: &[u8]) -> bool {
    let is_reasoning = member(item, b"type")
        .and_then(unescaped)
        .is_some_and(|kind| kind == "reasoning");
    let encrypted = member(item, b"encrypted_content").and_then(unescaped);
    !is_reasoning || encrypted.is_some_and(|text| !text.is_empty())
}

/// Returns the events with which weir itself answers a request that only prepares a conversation on a socket: a complete response
/// without output.
pub(crate) fn warm_up_events(id: &str, model: &str, created_at: i64) -> Vec<u8> {
    let response = |status: &str, usage: Value| {
        json!({
            "id": id, "object": "response", "created_at": created_at, "status": status, "model": model, "output": [],
            "error": null, "incomplete_details": null, "usage": usage,
        })
    };
    let usage = json!({
        "input_tokens": 0, "input_tokens_details": { "cached_tokens": 0 },
        "output_tokens": 0, "output_tokens_details": { "reasoning_tokens": 0 }, "total_tokens": 0,
    });
    let created = json!({
        "type": "response.created", "sequence_number": 0, "response": response("in_progress", Value::Null),
    });
    let completed = json!({
        "type": "response.completed", "sequence_number": 1, "response": response("completed", usage),
    });
    let event = |name: &str, data: &Value| format!("event: {name}\ndata: {data}\n\n");
    let text = event("response.created", &created) + &event("response.completed", &completed);
    text.into_bytes()
}

/// Returns the value of a member of a JSON object, as it is written; `None` if the object has no such member, or is malformed
/// before that member.
pub(super) fn member<'t>(object: &'t [u8], name: &[u8]) -> Option<&'t [u8]> {
    let mut rest = skip_space(skip_space(object).strip_prefix(b"{")?);
    loop {
        let (key, value) = split_key(rest)?;
        let behind = skip_value(value, 1)?;
        if key == name {
            return Some(without_end(value, behind));
        }
        rest = skip_space(skip_space(behind).strip_prefix(b",")?);
    }
}

/// Returns the elements of a JSON array as they are written; `None` if it is malformed.
pub(super) fn list_items(array: &[u8]) -> Option<Vec<&[u8]>> {
    let mut items = Vec::new();
    let mut rest = skip_space(array.strip_prefix(b"[")?);
    if rest.first() == Some(&b']') {
        return Some(items);
    }
    loop {
        let behind = skip_value(rest, 1)?;
        items.push(without_end(rest, behind));
        match skip_space(behind) {
            [b',', more @ ..] => rest = skip_space(more),
            [b']', ..] => return Some(items),
            _ => return None,
        }
    }
}
