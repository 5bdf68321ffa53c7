//! Interim heads (RFC 9110 section 15.2), which the client never sees: those of a provider, and the one that replaces a withheld
//! answer's head.

use http::StatusCode;
use pingora::{Result, http::ResponseHeader};
use pingora_proxy::Session;

/// Keeps interim heads (RFC 9110 section 15.2) from this client. They concern the provider only, and once any head has reached
/// the client no further attempt can follow. Over HTTP/2 Pingora sends none anyway.
pub(crate) fn suppress_interim_heads(session: &mut Session) {
    session.set_ignore_info_resp(true);
}

/// An empty interim head that replaces a head which the client must not get yet (see [`keep_from_client`]). Not 100, which would
/// reach a client that expects one.
pub(crate) fn interim_head() -> Result<ResponseHeader> {
    ResponseHeader::build(StatusCode::EARLY_HINTS, Some(0))
}
