//! Reads a request's head: the target, the presented keys, the client's address and the tags. Refuses requests that the head
//! alone shows to be invalid.

use std::net::{IpAddr, Ipv4Addr};

use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri, Version, header};
use ipnet::IpNet;
use pingora::{http::RequestHeader, protocols::http::ServerSession};
use pingora_proxy::Session;

use crate::{
    config::GatewayConfig,
    domain::{
        faults::refusal::Refusal,
        keys::PresentedCredentials,
        ledger::ids::{self, TAGS_MAX, Tag, TagsFault},
        wire::{
            operation::{self, OWN_USAGE_PATH, RequestTarget, RequestTargetError},
            protocol::Protocol,
            session_hint,
        },
    },
    edges::limiter::ClientAddress,
    gateway::coding::{self, Coding, MessageCoding},
};

/// The values of the `key=` parameters that were removed from the query. More than one value makes the caller's key ambiguous.
#[derive(Debug, Default)]
pub(crate) struct QueryKeys(pub Vec<String>);

/// Discards the letter case in which the client wrote the names of header fields. The case has no meaning, but Pingora's parser
/// stores it and would send it to the provider.
pub(crate) fn forget_spelling(head: &mut RequestHeader) {
    if head.has_case() {
        let (nothing, ()) = http::Request::new(()).into_parts();
        let spelled = std::mem::replace(head, RequestHeader::from(nothing));
        *head = RequestHeader::from(http::request::Parts::from(spelled));
    }
}

/// Removes the `key=` parameters from the request line, so that they are neither logged nor forwarded. Returns their values.
pub(crate) fn strip_query_keys(head: &mut RequestHeader) -> QueryKeys {
    let Some(query) = head.uri.query() else {
        return QueryKeys::default();
    };
    let (left, keys) = operation::split_key(query);
    if keys.is_empty() {
        return QueryKeys::default();
    }
    let path = head.uri.path();
    let target = if left.is_empty() {
        path.to_owned()
    } else {
        format!("{path}?{left}")
    };
    // The target stays valid when a parameter is removed. If it still cannot be parsed, path and query are replaced by `/`.
    let uri = target.parse::<Uri>().unwrap_or_else(|_| Uri::from_static("/"));
    head.set_uri(uri);
    QueryKeys(keys)
}

/// The protocol in whose form this request is answered. The path and the headers determine it.
pub(crate) fn protocol(head: &RequestHeader, keys: &QueryKeys) -> Protocol {
    let path = head.uri.path();
    let read_only = matches!(head.method, Method::GET | Method::HEAD);
    let of_gemini = match read_only {
        true => operation::has_gemini_method(path),
        false => path.contains([':', '%']),
    };
    let listing = path == OWN_USAGE_PATH || path == "/v1/models" || path.starts_with("/v1/models/") && !of_gemini;
    if !listing {
        return operation::error_protocol(path);
    }
    // Clients of all three protocols use these paths (docs/interface.md, Authentication); their headers distinguish them.
    let has = |name: &str| head.headers.contains_key(name);
    if has("x-goog-api-key") || has("x-genai-api-key") || !keys.0.is_empty() {
        Protocol::Gemini
    } else if has("anthropic-version") || has("x-api-key") {
        Protocol::Messages
    } else {
        Protocol::Responses
    }
}

/// Headers that are kept even if the `connection` header names them. They frame or address the request, and weir sets them again
/// for the provider.
static KEPT_HEADERS: [HeaderName; 3] = [header::HOST, header::CONTENT_LENGTH, header::TRANSFER_ENCODING];

/// Removes the headers about the client's connection from a request that is forwarded (RFC 9110 section 7.6.1): those that
/// `connection` names, `connection` itself, and `upgrade`. Without `upgrade`, neither Pingora nor a provider regards the request
/// as a switch of protocols. Called only after authentication, because authentication may need the headers that are removed here.
pub(crate) fn end_connection(head: &mut RequestHeader) {
    let named: Vec<HeaderName> = head
        .headers
        .get_all(header::CONNECTION)
        .iter()
        .flat_map(|value| value.as_bytes().split(|byte| *byte == b','))
        .filter_map(|name| HeaderName::from_bytes(name.trim_ascii()).ok())
        .filter(|name| !KEPT_HEADERS.contains(name))
        .collect();
    for name in named.iter().chain(&[header::CONNECTION, header::UPGRADE]) {
        head.remove_header(name);
    }
}

/// Parses the request's method and path.
pub(crate) fn target(head: &RequestHeader) -> Result<RequestTarget, Refusal> {
    let is_websocket = |value: &HeaderValue| {
        let text = value.to_str().unwrap_or_default();
        text.split(',')
            .any(|name| name.trim().eq_ignore_ascii_case("websocket"))
    };
    if head.method == Method::GET && head.uri.path() == "/v1/responses" {
        let has = |name: &HeaderName| head.headers.contains_key(name);
        if head.headers.get_all(header::UPGRADE).iter().any(is_websocket) {
            return Ok(RequestTarget::Socket);
        }
        // A client sends these headers only together with `upgrade`, so a proxy must have removed that one.
        if !has(&header::UPGRADE) && (has(&header::SEC_WEBSOCKET_KEY) || has(&header::SEC_WEBSOCKET_VERSION)) {
            return Err(Refusal::UpgradeRemoved);
        }
    }
    operation::read_target(head.method.as_str(), head.uri.path()).map_err(|error| match error {
        RequestTargetError::UnknownPath => Refusal::UnknownPath,
        RequestTargetError::MethodNotAllowed { allow } => Refusal::MethodNotAllowed { allow },
        RequestTargetError::ChatCompletionsRemoved => Refusal::ChatCompletionsRemoved,
        RequestTargetError::ModelPathInvalid => Refusal::ModelPathInvalid,
    })
}

/// Refuses a request whose headers exceed the configured limits (RFC 6585 section 5).
pub(crate) fn check_size(head: &RequestHeader, limits: &GatewayConfig) -> Result<(), Refusal> {
    let bytes: usize = head
        .headers
        .iter()
        .map(|(name, value)| name.as_str().len() + value.len() + 4)
        .sum();
    let line = head.uri.path_and_query().map_or(0, |target| target.as_str().len());
    if head.headers.len() > limits.header_count_max || bytes + line > limits.header_bytes_max {
        return Err(Refusal::HeadersTooLarge);
    }
    Ok(())
}

// Statics, because building a header name from a string checks each letter every time.
static X_API_KEY: HeaderName = HeaderName::from_static("x-api-key");
static X_GOOG_API_KEY: HeaderName = HeaderName::from_static("x-goog-api-key");
static X_GENAI_API_KEY: HeaderName = HeaderName::from_static("x-genai-api-key");

/// Returns all keys that the request presents, grouped by the place where they were found.
pub(crate) fn presented_keys<'a>(head: &'a RequestHeader, keys: &'a QueryKeys) -> PresentedCredentials<'a> {
    let headers = &head.headers;
    let mut x_goog_api_key = texts(headers, &X_GOOG_API_KEY);
    x_goog_api_key.extend(texts(headers, &X_GENAI_API_KEY));
    let authorization = texts(headers, &header::AUTHORIZATION);
    PresentedCredentials {
        x_api_key: texts(headers, &X_API_KEY),
        lacks_bearer_scheme: authorization.iter().any(|value| lacks_bearer_scheme(value)),
        bearer: authorization.into_iter().map(bearer_text).collect(),
        x_goog_api_key,
        query_key: keys.0.iter().map(String::as_str).collect(),
    }
}

/// The facts about a request's body that its headers contain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BodyHead {
    /// Whether the client waits before it sends the body.
    pub expectation: Expectation,
    /// The body's content coding; `None` for an uncompressed body.
    pub coding: Option<Coding>,
    /// The declared length of the body in bytes. `None` if no length is declared, or if a transfer coding overrides it.
    pub length: Option<u64>,
}

/// The minimum declared length in bytes of a heavy body. Receiving such a body takes far longer than a call to the store.
const HEAVY_BYTES_MIN: u64 = 1024 * 1024;

impl BodyHead {
    /// Whether the body may need much work or memory: it is large, compressed, or of unknown length.
    pub(crate) fn is_heavy(&self) -> bool {
        self.coding.is_some() || self.length.is_none_or(|length| length >= HEAVY_BYTES_MIN)
    }
}

/// Reads and checks the headers that concern the body, before any of it is read.
pub(crate) fn check_body(head: &RequestHeader, body_bytes_max: usize) -> Result<BodyHead, Refusal> {
    let headers = &head.headers;
    let coding = match coding::of_request(headers) {
        MessageCoding::No => None,
        MessageCoding::By(coding) => Some(coding),
        MessageCoding::Otherwise(encoding) => return Err(Refusal::BodyEncodingUnsupported { encoding }),
    };
    let (length, limit_bytes) = (content_length(headers), body_bytes_max as u64);
    if length.is_some_and(|length| length > limit_bytes) {
        return Err(Refusal::BodyTooLarge { limit_bytes });
    }
    let expectation = match headers.get(header::EXPECT).map(|value| value.as_bytes()) {
        None => Expectation::None,
        // The expectation of an HTTP/1.0 client is ignored (RFC 9110 section 10.1.1).
        Some(_) if head.version == Version::HTTP_10 => Expectation::None,
        Some(value) if value.eq_ignore_ascii_case(b"100-continue") => Expectation::Continue,
        Some(_) => return Err(Refusal::ExpectationUnknown),
    };
    Ok(BodyHead {
        expectation,
        coding,
        length,
    })
}

/// Whether the client waits before it sends the body (RFC 9110 section 10.1.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expectation {
    /// The client sends the body at once.
    None,
    /// The client waits for `100 Continue`.
    Continue,
}

/// The declared length of the body in bytes. `None` if no length is declared, or if a transfer coding overrides it.
pub(crate) fn content_length(headers: &HeaderMap) -> Option<u64> {
    if headers.contains_key(header::TRANSFER_ENCODING) {
        return None;
    }
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.trim().parse().ok()
}

fn texts<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Vec<&'a str> {
    // A value that is not valid text cannot be a key, but it still counts as a presented key.
    headers
        .get_all(name)
        .iter()
        .map(|value| value.to_str().unwrap_or("").trim())
        .collect()
}

fn bearer_text(value: &str) -> &str {
    match value.split_at_checked(7) {
        Some((scheme, rest)) if scheme.eq_ignore_ascii_case("bearer ") => rest.trim(),
        _ => "",
    }
}

/// Whether a value of the header `authorization` begins with a scheme other than `Bearer`. Returns false for an empty value.
fn lacks_bearer_scheme(value: &str) -> bool {
    let scheme = value.split_whitespace().next();
    scheme.is_some_and(|scheme| !scheme.eq_ignore_ascii_case("bearer"))
}

/// The address of the connection's peer; 0.0.0.0 if unknown.
pub(crate) fn peer_address(session: &Session) -> IpAddr {
    let peer = session.client_addr().and_then(|address| address.as_inet());
    peer.map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |address| address.ip())
}

/// The client's address as [`client`] returns it; `None` if it is the address of a trusted proxy, which many clients share.
pub(crate) fn known_client(session: &Session, trusted: &[IpNet]) -> Option<ClientAddress> {
    ClientAddress::single_from_headers(peer_address(session), &session.req_header().headers, trusted)
}

/// Returns the client's address. If the connection's peer is a `trusted` proxy, this is the address that the proxy reports in
/// `X-Forwarded-For`. Otherwise, it is the peer's address.
pub(crate) fn client(session: &Session, trusted: &[IpNet]) -> ClientAddress {
    ClientAddress::from_headers(peer_address(session), &session.req_header().headers, trusted)
}

/// Waits until the client disconnects. Never returns while the end of an HTTP/1.1 body is unread, because during that time a
/// disconnect cannot be detected.
pub(crate) async fn wait_for_disconnect(session: &mut Session) {
    let body_is_done = session.is_body_done();
    match &mut *session.downstream_session {
        ServerSession::H2(stream) => {
            let _ = stream.idle().await;
        }
        http1 if body_is_done => {
            // The loop ends with an error: the client has closed the connection, or sent data after its request.
            while http1.read_body_or_idle(true).await.is_ok() {}
        }
        _ => std::future::pending().await,
    }
}

/// The header that lists tags (docs/interface.md, Tags).
static TAG_HEADER: HeaderName = HeaderName::from_static("x-weir-tag");

/// Reads the tags of a request: those in `x-weir-tag`, and the session that an agent names. Refuses a request with an invalid
/// tag, because otherwise the sums of that tag would silently lack the request's cost. Ignores the session's name if it is not a
/// valid tag, or if the request already has the maximum number of tags. Such a request is not refused, because agents do not
/// choose that name for weir.
pub(crate) fn read_tags(head: &RequestHeader, config: &GatewayConfig) -> Result<Vec<Tag>, Refusal> {
    let values = head.headers.get_all(&TAG_HEADER).iter();
    let texts: Result<Vec<&str>, _> = values.map(|value| value.to_str()).collect();
    let texts = texts.map_err(|_| Refusal::TagsInvalid(TagsFault::Malformed { place: 1 }))?;
    let mut tags = ids::read(texts).map_err(Refusal::TagsInvalid)?;
    if config.session_tag
        && let Some(session) = session_hint::session_name(&head.headers).and_then(Tag::of_session)
        && tags.len() < TAGS_MAX
        && !tags.contains(&session)
    {
        tags.push(session);
    }
    Ok(tags)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head_with(method: &str, path: &[u8], fields: &[(&'static str, &str)]) -> RequestHeader {
        let mut head = RequestHeader::build(method, path, None).expect("a head");
        for (name, value) in fields {
            head.append_header(*name, *value).expect("a field");
        }
        head
    }

    #[test]
    fn a_handshake_whose_upgrade_a_proxy_has_removed_is_told_from_a_wrong_method() {
        let key = ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==");
        let version = ("sec-websocket-version", "13");
        let upgrade = ("upgrade", "websocket");
        let not_allowed = Err(Refusal::MethodNotAllowed { allow: "POST" });
        let path = b"/v1/responses".as_slice();
        for (method, path, fields, expected) in [
            ("GET", path, vec![key, version, upgrade], Ok(RequestTarget::Socket)),
            ("GET", path, vec![key, version], Err(Refusal::UpgradeRemoved)),
            ("GET", path, vec![key], Err(Refusal::UpgradeRemoved)),
            ("GET", path, vec![version], Err(Refusal::UpgradeRemoved)),
            ("GET", path, vec![key, ("upgrade", "h2c")], not_allowed.clone()),
            ("GET", path, vec![], not_allowed.clone()),
            ("PUT", path, vec![key, version], not_allowed.clone()),
            ("GET", b"/v1/messages".as_slice(), vec![key, version], not_allowed),
        ] {
            assert_eq!(
                target(&head_with(method, path, &fields)),
                expected,
                "{method} {fields:?}"
            );
        }
    }

    #[test]
    fn a_value_of_authorization_without_bearer_is_seen() {
        for (value, lacks, token) in [
            ("Bearer key", false, "key"),
            ("bearer  key", false, "key"),
            ("Bearer", false, ""),
            ("", false, ""),
            ("key", true, ""),
            ("Basic eDp5", true, ""),
            ("Bearerkey", true, ""),
        ] {
            let head = head_with("POST", b"/v1/responses", &[("authorization", value)]);
            let keys = QueryKeys::default();
            let presented = presented_keys(&head, &keys);
            assert_eq!(
                (presented.lacks_bearer_scheme, presented.bearer),
                (lacks, vec![token]),
                "{value}"
            );
        }
    }

    #[test]
    fn how_names_are_spelled_is_forgotten_and_nothing_else() {
        let mut head = RequestHeader::build("POST", b"/v1/messages?a=b", Some(3)).expect("a head");
        head.set_version(Version::HTTP_10);
        for (name, value) in [("X-Api-Key", "one"), ("ACCEPT", "a"), ("accept", "b")] {
            head.append_header(name, value).expect("a field");
        }
        assert!(head.has_case());
        let (fields, line) = (
            head.headers.clone(),
            (head.method.clone(), head.uri.clone(), head.version),
        );
        forget_spelling(&mut head);
        assert!(!head.has_case());
        assert_eq!((&head.headers, head.raw_path()), (&fields, &b"/v1/messages?a=b"[..]));
        assert_eq!((head.method.clone(), head.uri.clone(), head.version), line);
        let mut wire = Vec::new();
        head.header_to_h1_wire(&mut wire);
        assert_eq!(wire, b"x-api-key: one\r\naccept: a\r\naccept: b\r\n");
    }
}
