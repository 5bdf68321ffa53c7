//! The handshake of a socket (RFC 6455 section 4.2), and the parts of it that the socket uses later.

use std::fmt;

use http::{HeaderMap, HeaderName, HeaderValue, Method, Version, header, request::Parts};
use pingora::http::RequestHeader;
use smol_str::SmolStr;

use crate::{
    domain::{keys::secret::KeyDigest, wire::websocket::accept_key},
    edges::limiter::ClientAddress,
    gateway::key_slots::KeySlot,
};

/// The version of the WebSocket protocol that weir speaks.
const VERSION: &str = "13";
/// The beginning of the `openai-beta` value with which Codex requests a socket. A POST has no such value.
const SOCKET_BETA: &str = "responses_websockets";

/// Headers of the handshake that the requests on the socket do not inherit, in addition to those of the WebSocket protocol.
/// `idempotency-key` is one of them, because otherwise all requests on the socket would have the same idempotency key.
/// `connection` is not one of them. It names other headers that must not be forwarded, so it is removed only when a request is
/// forwarded.
static OWN_HEADERS: [HeaderName; 7] = [
    HeaderName::from_static("idempotency-key"),
    header::UPGRADE,
    header::CONTENT_LENGTH,
    header::CONTENT_ENCODING,
    header::TRANSFER_ENCODING,
    header::EXPECT,
    header::TE,
];

/// An accepted handshake.
pub(crate) struct SocketHandshake {
    /// The head of each request on the socket, without the length of its body.
    pub head: Parts,
    /// The value of `sec-websocket-accept`.
    pub accept: String,
    /// The request id of the handshake.
    pub request_id: SmolStr,
    /// The socket's identifier in the access log.
    pub socket_id: SmolStr,
    /// The digest of the key with which the socket is opened.
    pub digest: KeyDigest,
    /// The client's address. The socket's messages use this address's share of the memory for bodies. `None` if many clients
    /// share the address.
    pub address: Option<ClientAddress>,
    /// The slot of this socket; a key has a limited number of slots for open sockets.
    pub _slot: KeySlot,
}

impl fmt::Debug for SocketHandshake {
    /// Formats the handshake without the head, which contains the key.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("SocketHandshake")
            .field("socket_id", &self.socket_id)
            .finish_non_exhaustive()
    }
}

/// Returns the value of `sec-websocket-accept` for a handshake; `None` if weir does not accept the request as a handshake.
pub(crate) fn accept_value(head: &RequestHeader) -> Option<String> {
    let headers = &head.headers;
    let has_body = headers.contains_key(header::TRANSFER_ENCODING)
        || headers.get(header::CONTENT_LENGTH).is_some_and(|length| length != "0");
    let has_option = |option: &str| {
        headers.get_all(header::CONNECTION).iter().any(|value| {
            let mut names = value.to_str().unwrap_or_default().split(',');
            names.any(|name| name.trim().eq_ignore_ascii_case(option))
        })
    };
    // A connection that closes after its request cannot leave Pingora as a socket.
    let closes = has_option("close") && !has_option("keep-alive");
    if head.version != Version::HTTP_11 || has_body || closes || !has_option("upgrade") {
        return None;
    }
    let version = single(headers, &header::SEC_WEBSOCKET_VERSION)?;
    let key = single(headers, &header::SEC_WEBSOCKET_KEY)?;
    (version == VERSION).then(|| accept_key(key))?
}

/// Returns the value of a header; `None` unless the request has it exactly once.
fn single<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Option<&'h str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?;
    values.next().is_none().then(|| value.to_str().ok())?.map(str::trim)
}

/// Returns the head that every request on a socket gets: a POST with the headers of `head`, which is the socket's handshake.
pub(crate) fn request_head(head: &RequestHeader) -> Parts {
    let (mut parts, ()) = http::Request::new(()).into_parts();
    parts.method = Method::POST;
    parts.uri = head.uri.clone();
    parts.version = Version::HTTP_11;
    parts.headers = head.headers.clone();
    let is_own = |name: &HeaderName| OWN_HEADERS.contains(name) || name.as_str().starts_with("sec-websocket-");
    let own: Vec<HeaderName> = parts.headers.keys().filter(|name| is_own(name)).cloned().collect();
    for name in own {
        parts.headers.remove(name);
    }
    let beta = HeaderName::from_static("openai-beta");
    let asks_for_socket = |value: &HeaderValue| value.to_str().is_ok_and(|text| text.trim().starts_with(SOCKET_BETA));
    let others: Vec<HeaderValue> = parts.headers.get_all(&beta).iter().cloned().collect();
    if others.iter().any(asks_for_socket) {
        parts.headers.remove(&beta);
        for value in others.into_iter().filter(|value| !asks_for_socket(value)) {
            parts.headers.append(beta.clone(), value);
        }
    }
    let json = HeaderValue::from_static("application/json");
    parts.headers.insert(header::CONTENT_TYPE, json);
    // The values are slices of the buffer into which Pingora has read the head. Copies let the socket free that buffer.
    for value in parts.headers.values_mut() {
        *value = own_copy(value);
    }
    parts
}

/// Returns a copy of a header's value with memory of its own.
fn own_copy(value: &HeaderValue) -> HeaderValue {
    let mut copy = HeaderValue::from_bytes(value.as_bytes()).unwrap_or_else(|_| value.clone());
    copy.set_sensitive(value.is_sensitive());
    copy
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::request::head::end_connection;

    fn handshake(change: impl FnOnce(&mut RequestHeader)) -> RequestHeader {
        let mut head = RequestHeader::build("GET", b"/v1/responses?a=b", None).expect("a head");
        for (name, value) in [
            ("host", "weir.example"),
            ("authorization", "Bearer k"),
            ("connection", "keep-alive, Upgrade"),
            ("upgrade", "websocket"),
            ("sec-websocket-version", "13"),
            ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
            ("sec-websocket-extensions", "permessage-deflate"),
            ("openai-beta", "responses_websockets=2026-02-06"),
            ("openai-beta", "other=1"),
        ] {
            head.append_header(name, value).expect("a field");
        }
        change(&mut head);
        head
    }

    #[test]
    fn a_handshake_has_the_version_the_key_and_no_body() {
        // The key and the expected value are the example of RFC 6455 section 1.3.
        let accepted = accept_value(&handshake(|_| ()));
        assert_eq!(accepted.as_deref(), Some("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="));
        for (name, value) in [
            ("sec-websocket-version", "8"),
            ("sec-websocket-key", "short"),
            ("connection", "close"),
            ("connection", "Close, Upgrade"),
            ("content-length", "1"),
            ("transfer-encoding", "chunked"),
        ] {
            let head = handshake(|head| head.insert_header(name, value).expect("a field"));
            assert_eq!(accept_value(&head), None, "{name}: {value}");
        }
        let twice = handshake(|head| {
            head.append_header("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==")
                .map(drop)
                .expect("a field");
        });
        assert_eq!(accept_value(&twice), None);
        assert_eq!(
            accept_value(&handshake(|head| head.set_version(Version::HTTP_10))),
            None
        );
    }

    #[test]
    fn a_request_on_the_socket_is_a_post_with_the_headers_of_the_handshake() {
        let parts = request_head(&handshake(|head| {
            head.insert_header("idempotency-key", "one").expect("a field");
        }));
        assert_eq!(
            (parts.method.as_str(), parts.uri.to_string().as_str()),
            ("POST", "/v1/responses?a=b")
        );
        let mut names: Vec<&str> = parts.headers.keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        assert_eq!(
            names,
            ["authorization", "connection", "content-type", "host", "openai-beta"]
        );
        assert_eq!(parts.headers["openai-beta"], "other=1");
    }

    #[test]
    fn a_header_that_concerns_the_connection_ends_here() {
        let parts = request_head(&handshake(|head| {
            head.insert_header("connection", "Upgrade, X-Hop").expect("a field");
            head.insert_header("x-hop", "1").expect("a field");
        }));
        let mut head = RequestHeader::from(parts);
        end_connection(&mut head);
        let has = |name: &str| head.headers.contains_key(name);
        assert!(!has("x-hop") && !has("connection") && has("authorization"));
    }
}
