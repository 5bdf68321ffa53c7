//! The header fields of an answer: removes the provider's fields that the client must not get, and adds weir's.

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use pingora::{Error, ErrorType, Result, http::ResponseHeader};
use pingora_proxy::Session;
use smallvec::SmallVec;

use crate::{
    domain::{
        keys::forwarding,
        ledger::period,
        wire::protocol::{Protocol, provider_error::redact},
    },
    gateway::{forward::Forward, reply::REQUEST_ID, request::translation::TRANSLATION_HEADER},
};

/// Removes the fields that must not reach the client, and adds the request ids and the quota of the client's key.
pub(crate) fn adapt(forward: &Forward, head: &mut ResponseHeader) -> Result<()> {
    strip(forward, head);
    add_spend_limit(forward, head)?;
    // Replaces the provider's reason phrase with the standard one for the status.
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

/// Adds the header that lists the losses of a translation, with the content `value`. Does nothing if `value` is `None`, which
/// means that the answer is not translated.
pub(crate) fn set_translation(value: Option<String>, head: &mut ResponseHeader) -> Result<()> {
    match value.and_then(|value| HeaderValue::try_from(value).ok()) {
        Some(value) => head.insert_header(TRANSLATION_HEADER, value),
        None => Ok(()),
    }
}

/// Removes the headers about the provider's connection (RFC 9110 section 7.6.1), the provider's front end and the operator's
/// account at the provider, and the headers that contain the credential.
fn strip(forward: &Forward, head: &mut ResponseHeader) {
    let credential = forward.attempts.secret();
    // An error may quote the credential with some characters masked. Any other answer could only contain the complete credential.
    let is_error = head.status.as_u16() >= 400;
    let tells = |value: &[u8]| match is_error {
        true => redact(value, credential).is_some(),
        false => forwarding::contains_secret(value, credential.as_bytes()),
    };
    let headers = &head.headers;
    let is_unwanted = |name: &HeaderName| {
        is_about_connection(name)
            || is_nominated(headers, name)
            || forwarding::account_header_kind(name.as_str()).is_some()
    };
    let unwanted = headers
        .iter()
        .filter(|(name, value)| is_unwanted(name) || tells(value.as_bytes()));
    let unwanted: SmallVec<[HeaderName; 4]> = unwanted.map(|(name, _)| name.clone()).collect();
    for name in unwanted {
        head.remove_header(&name);
    }
}

/// Whether a header describes the provider's connection or front end, which does not concern the client.
fn is_about_connection(name: &HeaderName) -> bool {
    match *name {
        header::ALT_SVC
        | header::CONNECTION
        | header::PROXY_AUTHENTICATE
        | header::SERVER
        | header::STRICT_TRANSPORT_SECURITY
        | header::TRAILER
        | header::UPGRADE
        | header::VIA
        | header::WWW_AUTHENTICATE => true,
        _ => matches!(
            name.as_str(),
            "cf-cache-status" | "cf-ray" | "keep-alive" | "nel" | "proxy-connection" | "report-to" | "x-powered-by"
        ),
    }
}

/// Whether the head's `Connection` header names this header. Returns false for the headers of the framing, which always stay.
fn is_nominated(headers: &HeaderMap, name: &HeaderName) -> bool {
    let values = headers.get_all(header::CONNECTION).iter();
    let mut names = values
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','));
    names.any(|nominated| nominated.trim().eq_ignore_ascii_case(name.as_str()))
        && *name != header::TRANSFER_ENCODING
        && *name != header::CONTENT_LENGTH
}

/// Whether a head announces that the answer has no body.
pub(crate) fn announces_no_body(head: &ResponseHeader) -> bool {
    let length = head.headers.get(header::CONTENT_LENGTH);
    let is_chunked = head.headers.contains_key(header::TRANSFER_ENCODING);
    matches!(head.status, StatusCode::NO_CONTENT | StatusCode::RESET_CONTENT)
        || !is_chunked && length.is_some_and(|length| length.as_bytes().iter().all(|digit| *digit == b'0'))
}

/// Keeps Pingora from sending the provider's interim heads (RFC 9110 section 15.2) to this client. Such heads concern weir only,
/// and no further attempt can follow once any head has reached the client. Over HTTP/2 Pingora sends none anyway.
pub(crate) fn suppress_interim_heads(session: &mut Session) {
    session.set_ignore_info_resp(true);
}

/// Builds an empty interim head for Pingora, instead of a head that the client must not get yet (see [`suppress_interim_heads`]).
/// Its status is not 100, because Pingora would pass a head with this status on to a client that expects `100 Continue`.
pub(crate) fn interim_head() -> Result<ResponseHeader> {
    ResponseHeader::build(StatusCode::EARLY_HINTS, Some(0))
}

/// Adds headers that inform a Messages client about its key's quota, instead of the provider's headers about the operator's
/// account. Does nothing if the answer is not a success, or if the key has no quota. An error keeps the provider's headers,
/// because they say when to try again.
pub(crate) fn add_spend_limit(forward: &Forward, head: &mut ResponseHeader) -> Result<()> {
    let Some(standing) = forward.ticket.quota() else {
        return Ok(());
    };
    if forward.request.operation.protocol() != Protocol::Messages || !head.status.is_success() {
        return Ok(());
    }
    let is_the_operators = |name: &&HeaderName| name.as_str().starts_with(period::PREFIX);
    let names: SmallVec<[HeaderName; 8]> = head.headers.keys().filter(is_the_operators).cloned().collect();
    for name in names {
        head.remove_header(&name);
    }
    for (name, value) in period::success_headers(&standing) {
        head.insert_header(name, value)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_about_the_connection_are_known_by_name() {
        for name in [
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
        ] {
            assert!(is_about_connection(&HeaderName::from_static(name)), "{name}");
        }
        for name in [
            "cache-control",
            "content-length",
            "content-type",
            "date",
            "retry-after",
            "x-request-id",
        ] {
            assert!(!is_about_connection(&HeaderName::from_static(name)), "{name}");
        }
    }

    #[test]
    fn the_connection_header_names_others_but_never_the_framing() {
        let mut headers = HeaderMap::new();
        assert!(!is_nominated(&headers, &header::DATE));
        for value in ["Keep-Alive, X-Hop ,transfer-encoding", "content-length,x-other"] {
            headers.append(header::CONNECTION, HeaderValue::from_static(value));
        }
        for (name, expected) in [
            ("x-hop", true),
            ("x-other", true),
            ("keep-alive", true),
            ("x-ho", false),
            ("transfer-encoding", false),
            ("content-length", false),
        ] {
            assert_eq!(
                is_nominated(&headers, &HeaderName::from_static(name)),
                expected,
                "{name}"
            );
        }
    }
}
