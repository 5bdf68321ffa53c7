//! The form in which an answer leaves: the outlet of its body, and the transfer coding that the outlet needs.

use std::sync::Arc;

use http::{HeaderName, HeaderValue, Version, header};
use pingora::{Result, http::ResponseHeader};
use pingora_proxy::Session;

use crate::{
    domain::{
        rules::{ErrorShape, ResponseRewriter},
        wire::protocol::AnswerFraming,
    },
    gateway::{
        forward::Forward,
        outlet::{Outlet, possible_error::PossibleError},
    },
};

/// Chooses the outlet of a body with this framing, and gives the head the transfer coding that the outlet needs.
pub(crate) fn shape(
    session: &Session,
    forward: &mut Forward,
    head: &mut ResponseHeader,
    framing: AnswerFraming,
) -> Result<()> {
    let is_plain = !forward.meter.is_compressed();
    forward.outlet = match is_plain {
        true => outlet(session, forward, framing),
        false => Outlet::Pass,
    };
    let is_edited = forward.outlet.may_change_length();
    if is_edited || is_plain && matches!(framing, AnswerFraming::Sse | AnswerFraming::JsonArray) {
        // The length may change: the body may be edited, reshaped, or followed by an in-band error.
        head.remove_header(&header::CONTENT_LENGTH);
    }
    // Pingora does this for a head of HTTP/2, but it gets the interim head instead.
    head.set_version(Version::HTTP_11);
    let is_delimited = |name: &HeaderName| head.headers.contains_key(name);
    if !is_delimited(&header::CONTENT_LENGTH) && !is_delimited(&header::TRANSFER_ENCODING) {
        head.insert_header(header::TRANSFER_ENCODING, HeaderValue::from_static("chunked"))?;
    }
    if session.req_header().version == Version::HTTP_10 {
        // HTTP/1.0 has no chunks: without a length the connection's end delimits the answer (RFC 9112 section 6.1).
        head.remove_header(&header::TRANSFER_ENCODING);
    }
    Ok(())
}

/// Releases a held head to the client, before a body whose framing may differ from the announced one.
pub(crate) fn release(session: &mut Session, forward: &mut Forward, announced: AnswerFraming) -> Result<()> {
    let gate = Arc::clone(&forward.client.write_gate);
    match forward.meter.framing() {
        Some(framing) if framing != announced => match gate.head.is_waiting() {
            true => gate.head.edit(|head| shape(session, forward, head, framing))?,
            false => forward.outlet = Outlet::Pass,
        },
        _ => {}
    }
    gate.head.release(&mut session.downstream_session)?;
    if session.is_body_done() {
        // No attempt can follow, so the memory is freed before the answer streams.
        forward.free_body();
    }
    Ok(())
}

/// The outlet of a success that is not compressed.
fn outlet(session: &Session, forward: &Forward, framing: AnswerFraming) -> Outlet {
    let endpoint = forward.attempts.endpoint();
    let facts = forward.request.facts(&session.req_header().headers, endpoint);
    let rewriter = ResponseRewriter::new(&endpoint.provider.response, &facts, framing);
    if framing == AnswerFraming::Json && endpoint.provider.errors == ErrorShape::Reshape {
        return Outlet::PossibleError(Box::new(PossibleError::new(rewriter)));
    }
    rewriter.map_or(Outlet::Pass, |rewriter| Outlet::Rewrite(Box::new(rewriter)))
}
