//! Presents a provider's WebSocket as HTTP. The body of a POST becomes a `response.create` frame. The frames of the answer become
//! the chunks of a stream of server-sent events. An error frame before the first event becomes an error answer.

#[cfg(test)]
mod tests;

use std::borrow::Cow;

use bytes::{Bytes, BytesMut};
use serde_json::Value;

use crate::domain::wire::{
    json_scan::unescaped,
    json_skip::{skip_space, skip_value, split_key, without_end},
    protocol::InBandError,
    responses_socket::{
        client_frame::{FrameMemberName, is_false, split_members},
        server_frame::{flat_error, is_frame_header, member},
    },
};

/// The head of an answer whose events arrive as frames.
pub(crate) const STREAM_HEAD: &[u8] =
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n";

/// The chunk that ends a complete stream.
pub(crate) const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

/// The code of the error with which a provider ends a WebSocket that has reached its maximum age.
pub(crate) const AGE_REACHED: &str = "websocket_connection_limit_reached";

/// The code of the error with which a provider refuses to continue a response, because the response is not available on this
/// WebSocket.
pub(crate) const PARENT_GONE: &str = "previous_response_not_found";

/// The beginning of a `response.create` frame.
const CREATE: &[u8] = br#"{"type":"response.create""#;
/// The `stream` member at the end of each body that weir builds from a client's frame. Providers do not accept this member over
/// WebSocket.
const STREAM_MEMBER: &[u8] = br#""stream":true}"#;

/// The beginning of `input` in each body that weir builds to continue a response.
const INPUT_MEMBER: &[u8] = br#""input":["#;

/// The maximum number of headers that are read from an error frame.
const HEADERS_MAX: usize = 64;

/// A `response.create` frame, in parts that share the memory of the POST's body.
#[derive(Clone, Debug)]
pub(crate) struct CreateFrame {
    parts: Vec<Bytes>,
}

impl CreateFrame {
    /// Turns the body of a POST into a frame. Returns `None` if a frame cannot express this body.
    pub(crate) fn from_body(body: &Bytes) -> Option<Self> {
        let inside = match body.strip_suffix(STREAM_MEMBER) {
            Some([b'{']) => Some(Bytes::new()),
            // A quotation mark directly after a comma begins a key.
            Some([b'{', inside @ .., b',']) => Some(body.slice_ref(inside)),
            Some(_) | None => None,
        };
        let own = match inside {
            Some(inside) if inside.is_empty() => Vec::new(),
            Some(inside) => vec![Bytes::from_static(b","), inside],
            None => members_for_frame(body)?,
        };
        let mut parts = vec![Bytes::from_static(CREATE)];
        parts.extend(own);
        parts.push(Bytes::from_static(b"}"));
        Some(Self { parts })
    }

    /// Turns the body of a POST into a frame that continues the response `parent` and contains only the new part of the input.
    /// `input` is the text of the body's `input` between the brackets; its last `new_bytes` bytes are the new part. Returns
    /// `None` if the body has a different input, or if weir did not build the body from a client's frame.
    pub(crate) fn continuing(body: &Bytes, parent: &str, (input, new_bytes): (&[u8], usize)) -> Option<Self> {
        let inside = body.strip_suffix(STREAM_MEMBER)?.strip_suffix(b"],")?;
        let before = inside.strip_suffix(input)?.strip_suffix(INPUT_MEMBER)?;
        let members = match before {
            [b'{'] => Vec::new(),
            [b'{', members @ .., b','] => vec![Bytes::from_static(b","), body.slice_ref(members)],
            _ => return None,
        };
        let new = inside.get(inside.len().checked_sub(new_bytes)?..)?;
        let parent = serde_json::to_string(parent).ok()?;
        let mut parts = vec![Bytes::from_static(CREATE)];
        parts.extend(members);
        parts.push(format!(r#","previous_response_id":{parent},"#).into());
        parts.push(Bytes::from_static(INPUT_MEMBER));
        parts.push(body.slice_ref(new));
        parts.push(Bytes::from_static(b"]}"));
        Some(Self { parts })
    }

    /// Removes the parts of the frame's text from the frame, and returns them.
    pub(crate) fn take_parts(&mut self) -> Vec<Bytes> {
        std::mem::take(&mut self.parts)
    }
}

/// Returns the members of a body that are copied to its frame, each preceded by a comma. Returns `None` if the body is malformed,
/// or has a member that a frame cannot express.
fn members_for_frame(body: &Bytes) -> Option<Vec<Bytes>> {
    let mut parts = Vec::new();
    for member in split_members(body).ok()? {
        let value = body.get(member.value.clone());
        match member.name {
            FrameMemberName::Stream => {}
            FrameMemberName::Background if is_false(value) => {}
            FrameMemberName::Background
            | FrameMemberName::Type
            | FrameMemberName::StreamId
            | FrameMemberName::Generate => return None,
            FrameMemberName::PreviousResponseId
            | FrameMemberName::Input
            | FrameMemberName::Store
            | FrameMemberName::Other => {
                parts.push(Bytes::from_static(b","));
                parts.push(body.slice_ref(body.get(member.start..member.value.end)?));
            }
        }
    }
    Some(parts)
}

/// The kinds of frames that a provider sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProviderEventKind {
    /// `response.created`: the first event of a response.
    Created,
    /// `response.completed`: the last event of a complete response.
    Completed,
    /// `response.failed` or `response.incomplete`: the last event of a response that is not complete.
    Unfinished,
    /// `error`: the last event of a response, or the only answer to a request.
    Error,
    /// Any other event.
    Progress,
}

/// A frame of a provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ProviderEvent<'d> {
    /// The frame's JSON object.
    data: &'d [u8],
    /// The event's type; `None` if the frame has none.
    name: Option<Cow<'d, str>>,
    pub kind: ProviderEventKind,
}

impl<'d> ProviderEvent<'d> {
    /// Reads a frame.
    pub(crate) fn read(data: &'d [u8]) -> Self {
        let name = member(data, b"type").and_then(unescaped);
        let kind = match name.as_deref() {
            Some("response.created") => ProviderEventKind::Created,
            Some("response.completed") => ProviderEventKind::Completed,
            Some("response.failed" | "response.incomplete") => ProviderEventKind::Unfinished,
            Some("error") => ProviderEventKind::Error,
            Some(_) | None => ProviderEventKind::Progress,
        };
        Self { data, name, kind }
    }

    /// Whether the event is the last one of its response.
    pub(crate) fn is_last(&self) -> bool {
        match self.kind {
            ProviderEventKind::Completed | ProviderEventKind::Unfinished | ProviderEventKind::Error => true,
            ProviderEventKind::Created | ProviderEventKind::Progress => false,
        }
    }

    /// Returns the id of the response to which the event belongs; `None` if the event does not contain it.
    pub(crate) fn response_id(&self) -> Option<String> {
        let response = member(self.data, b"response")?;
        Some(unescaped(member(response, b"id")?)?.into_owned())
    }

    /// Returns the code of an error; `None` if the error has no code.
    pub(crate) fn error_code(&self) -> Option<Cow<'d, str>> {
        let object = member(self.data, b"error").filter(|value| value.starts_with(b"{"));
        member(object.unwrap_or(self.data), b"code").and_then(unescaped)
    }

    /// Appends the event as one chunk of the stream that answers the POST.
    pub(crate) fn write_chunk(&self, out: &mut BytesMut) {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        let plain = self.name.as_deref().filter(|name| name.bytes().all(is_plain));
        let begin = plain.map_or_else(String::new, |name| format!("event: {name}\n")) + "data: ";
        let end = "\n\n";
        let length = begin.len() + self.data.len() + end.len();
        out.extend_from_slice(format!("{length:x}\r\n{begin}").as_bytes());
        let start = out.len();
        out.extend_from_slice(self.data);
        // A line break between JSON tokens is white space, but it would end the line of the event.
        for byte in out.get_mut(start..).unwrap_or_default() {
            if matches!(*byte, b'\n' | b'\r') {
                *byte = b' ';
            }
        }
        out.extend_from_slice(end.as_bytes());
        out.extend_from_slice(b"\r\n");
    }

    /// Turns an error that arrived before any event into the complete answer to the POST, and appends that answer.
    pub(crate) fn write_error_answer(&self, out: &mut BytesMut) {
        let status = self.error_status();
        let object = member(self.data, b"error").filter(|value| value.starts_with(b"{"));
        let error = object.map_or_else(|| flat_error(status, self.data), <[u8]>::to_vec);
        let body = [&br#"{"error":"#[..], error.as_slice(), b"}"].concat();
        let mut head = format!("HTTP/1.1 {status} Error\r\ncontent-type: application/json\r\nconnection: close\r\n");
        for (name, value) in self.error_headers() {
            head += &format!("{name}: {value}\r\n");
        }
        head += &format!("content-length: {}\r\n\r\n", body.len());
        out.extend_from_slice(head.as_bytes());
        out.extend_from_slice(&body);
    }

    /// Returns the HTTP status of an error: the status in the frame, or else the status for the error's code or type.
    fn error_status(&self) -> u16 {
        let number =
            |name: &[u8]| member(self.data, name).and_then(|value| std::str::from_utf8(value).ok()?.parse().ok());
        let named: Option<u16> = number(b"status").or_else(|| number(b"status_code"));
        named.filter(|status| (400..600).contains(status)).unwrap_or_else(|| {
            let object = member(self.data, b"error").filter(|value| value.starts_with(b"{"));
            let kind = object.and_then(|object| unescaped(member(object, b"type")?));
            let code = self.error_code().map(Cow::into_owned);
            let kind = kind.map_or_else(String::new, Cow::into_owned);
            InBandError { kind, code }.status()
        })
    }

    /// Returns the headers of an error frame that are copied to the answer to the POST. The names are in lower case.
    fn error_headers(&self) -> Vec<(String, String)> {
        let mut headers = Vec::new();
        let Some(mut rest) = member(self.data, b"headers").and_then(|object| object.strip_prefix(b"{")) else {
            return headers;
        };
        for _ in 0..HEADERS_MAX {
            let Some((name, value)) = split_key(skip_space(rest)) else {
                break;
            };
            let Some(behind) = skip_value(value, 1) else { break };
            let name = String::from_utf8_lossy(name).to_ascii_lowercase();
            let is_name = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
            if let Some(text) = header_text(without_end(value, behind))
                && is_name
                && is_frame_header(&name)
            {
                headers.push((name, text));
            }
            let Some(more) = skip_space(behind).strip_prefix(b",") else {
                break;
            };
            rest = more;
        }
        headers
    }
}

/// Returns the value of a header in an error frame as text. The value can be a string, a number or a boolean; `None` if it is
/// anything else, or contains characters that are not allowed in a header.
fn header_text(value: &[u8]) -> Option<String> {
    let text = match serde_json::from_slice(value).ok()? {
        Value::String(text) => text,
        Value::Number(number) => number.to_string(),
        Value::Bool(truth) => truth.to_string(),
        Value::Null | Value::Array(_) | Value::Object(_) => return None,
    };
    text.bytes()
        .all(|byte| byte.is_ascii_graphic() || byte == b' ')
        .then_some(text)
}
