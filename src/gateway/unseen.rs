//! Heads that no client sees: those that come before a provider's final one, and that of an answer which is withheld.

use http::StatusCode;
use pingora::{Result, http::ResponseHeader};
use pingora_proxy::Session;

/// Keeps every head that is not final from this client. What a provider says before its answer is the provider's business, and
/// once any head has gone to the client no further attempt could follow. Over HTTP/2 Pingora sends none in any case.
pub fn keep_from_client(session: &mut Session) {
    session.set_ignore_info_resp(true);
}

/// A head that stays here (see [`keep_from_client`]), with nothing of the provider's in it. Not 100, which would reach a client
/// that has asked for it.
pub fn head() -> Result<ResponseHeader> {
    ResponseHeader::build(StatusCode::EARLY_HINTS, Some(0))
}
