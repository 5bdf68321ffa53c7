//! The header fields of an answer: what of the provider's reaches the client, and what weir adds.

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use pingora::{Error, ErrorType, Result, http::ResponseHeader};
use smallvec::SmallVec;

use crate::{
    domain::{
        keys::{account_headers, plain_search},
        wire::protocol::provider_error::redact,
    },
    gateway::{answer::spend_limit, forward::Forward, reply::REQUEST_ID},
};

/// Response headers about the provider's connection or front end, which are not for the client.
const NOT_RETURNED: [&str; 16] = [
    "alt-svc",
    "cf-cache-status",
    "cf-ray",
    "connection",
    "keep-alive",
    "nel",
    "report-to",
    "proxy-connection",
    "server",
    "strict-transport-security",
    "trailer",
    "upgrade",
    "via",
    "x-powered-by",
    "www-authenticate",
    "proxy-authenticate",
];

/// Removes what must not reach the client and adds the request ids.
pub(crate) fn fit(forward: &Forward, head: &mut ResponseHeader) -> Result<()> {
    strip(forward, head);
    spend_limit::tell(forward, head)?;
    // The provider's reason phrase is replaced by the standard one.
    head.set_reason_phrase(None)?;
    let request_id = HeaderValue::from_str(&forward.ticket.request_id)
        .map_err(|_| Error::explain(ErrorType::InternalError, "the request id is not a header value"))?;
    let protocol_id = forward.request.operation.protocol().request_id_header();
    if !head.headers.contains_key(protocol_id) {
        head.insert_header(protocol_id, request_id.clone())?;
    }
    head.insert_header(REQUEST_ID, request_id)?;
    Ok(())
}

/// Removes headers about the provider's connection (RFC 9110 section 7.6.1), its front end and the operator's account there.
fn strip(forward: &Forward, head: &mut ResponseHeader) {
    let nominated: Vec<String> = head
        .headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(|name| name.trim().to_ascii_lowercase())
        .filter(|name| name != "transfer-encoding" && name != "content-length")
        .collect();
    let is_hop = |name: &str| NOT_RETURNED.contains(&name) || nominated.iter().any(|nominated| nominated == name);
    let is_unwanted = |name: &str| is_hop(name) || account_headers::kind_of(name).is_some();
    for name in present(&head.headers, is_unwanted) {
        head.remove_header(&name);
    }
    let credential = forward.attempts.secret();
    // An error may quote the credential partly masked; any other answer could only contain it whole.
    let is_error = head.status.as_u16() >= 400;
    let tells = |value: &[u8]| match is_error {
        true => redact(value, credential).is_some(),
        false => plain_search::is_in(value, credential.as_bytes()),
    };
    let telling: Vec<_> = head
        .headers
        .iter()
        .filter(|(_, value)| tells(value.as_bytes()))
        .map(|(name, _)| name.clone())
        .collect();
    for name in telling {
        head.remove_header(&name);
    }
}

/// Whether the fields of a head say that no body follows.
pub(crate) fn say_no_body(head: &ResponseHeader) -> bool {
    let length = head.headers.get(header::CONTENT_LENGTH);
    let is_chunked = head.headers.contains_key(header::TRANSFER_ENCODING);
    matches!(head.status, StatusCode::NO_CONTENT | StatusCode::RESET_CONTENT)
        || !is_chunked && length.is_some_and(|length| length.as_bytes().iter().all(|digit| *digit == b'0'))
}

/// The names that are present and unwanted. Looking up each unwanted name would cost many times as much.
fn present(headers: &HeaderMap, unwanted: impl Fn(&str) -> bool) -> SmallVec<[HeaderName; 4]> {
    let names = headers.keys().filter(|name| unwanted(name.as_str()));
    names.cloned().collect()
}
