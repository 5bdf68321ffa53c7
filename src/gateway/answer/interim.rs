//! Interim heads (RFC 9110 section 15.2), which the client never sees: those of a provider, and the one that takes the
//! place of a withheld answer's head.

use http::StatusCode;
use pingora::{Result, http::ResponseHeader};
use pingora_proxy::Session;

/// Keeps interim heads from this client. They concern the provider only, and once any head has reached the client no
/// further attempt can follow. Over HTTP/2 Pingora sends none anyway.
pub(crate) fn keep_from_client(session: &mut Session) {
    session.set_ignore_info_resp(true);
}

/// An interim head that stays here (see [`keep_from_client`]), with nothing of the provider's in it. Not 100, which
/// would reach a client that expects one.
pub(crate) fn head() -> Result<ResponseHeader> {
    ResponseHeader::build(StatusCode::EARLY_HINTS, Some(0))
}
