//! The answer's head: what it means, and what of it the client gets.

use http::{HeaderValue, StatusCode, Version, header};
use pingora::{Error, ErrorType, Result, http::ResponseHeader};
use pingora_proxy::Session;

use crate::{
    domain::{
        faults::refusal::Refusal,
        rules::{ErrorShape, ResponseRewriter},
        wire::protocol::{Framing, framing_of},
    },
    edges::clock,
    gateway::{
        answer::{error, fields, interim, redirect},
        attempt::{interruption::Interruption, verdict},
        coding::{self, Coded},
        forward::Forward,
        outlet::{Outlet, possible_error::PossibleError},
    },
    telemetry::metrics::Metrics,
};

/// The provider's answer has a head. An error return ends the attempt.
pub(crate) fn accept(metrics: &Metrics, forward: &mut Forward, head: &mut ResponseHeader) -> Result<()> {
    forward.dispatch.attempt.byte_seen(clock::instant());
    if head.status == StatusCode::SWITCHING_PROTOCOLS {
        // Final for Pingora, which would relay bytes of no known protocol. Nobody has asked for a switch.
        return Err(unusable());
    }
    if head.status.is_informational() {
        *head = interim::head()?;
        return Ok(());
    }
    forward.dispatch.attempt.head_seen();
    let status = head.status.as_u16();
    if forward.dispatch.provider().error_rules.concern(status) {
        return error::withhold(metrics, forward, head, false);
    }
    let is_error = status >= 400;
    let refused = forward.dispatch.provider().refuses_credential(status, None);
    let asked_pause = is_error.then(|| error::asked_pause(head)).flatten();
    let has_left = forward.recipient.has_left();
    verdict::act(metrics, &mut forward.dispatch, has_left, status, refused, asked_pause)?;
    if is_error {
        return error::withhold(metrics, forward, head, true);
    }
    if head.status.is_redirection() {
        return Err(redirect::refuse(forward, head));
    }
    if is_empty_stream(forward, head) {
        return Err(unusable());
    }
    Ok(())
}

/// The provider's answer cannot be passed on.
fn unusable() -> Box<Error> {
    Interruption::Refused(Refusal::ProviderBroken)
        .error(ErrorType::InvalidHTTPHeader, "an answer that cannot be passed on")
        .into_up()
}

/// Whether this is a stream without a single byte, which would look like a finished one.
fn is_empty_stream(forward: &Forward, head: &ResponseHeader) -> bool {
    forward.dispatch.request.stream
        && head.status.is_success()
        && head
            .headers
            .get(header::CONTENT_LENGTH)
            .is_some_and(|length| length.as_bytes() == b"0")
}

/// Prepares the head for the client and chooses the observer for the body.
pub(crate) fn prepare(session: &mut Session, forward: &mut Forward, head: &mut ResponseHeader) -> Result<()> {
    if head.status.is_informational() {
        return Ok(());
    }
    fields::fit(forward, head)?;
    let protocol = forward.dispatch.request.operation.protocol();
    let status = head.status.as_u16();
    let content_type = head
        .headers
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok());
    let framing = framing_of(forward.dispatch.request.operation, content_type);
    let coded = coding::of(&head.headers);
    forward.ticket.meter.head_seen(status, protocol, framing, &coded);
    let is_plain = coded == Coded::No;
    if is_plain {
        forward.outlet = outlet(session, forward, framing);
    }
    let is_edited = forward.outlet.may_change_length();
    if is_edited || is_plain && matches!(framing, Framing::Sse | Framing::JsonArray) {
        // The length may change: the body may be edited, reshaped, or followed by an in-band error.
        head.remove_header(&header::CONTENT_LENGTH);
        if session.req_header().version == Version::HTTP_11 {
            head.insert_header(header::TRANSFER_ENCODING, HeaderValue::from_static("chunked"))?;
        }
    }
    if session.req_header().version == Version::HTTP_10 {
        // HTTP/1.0 has no chunks: without a length the answer ends with the connection (RFC 9112 section 6.1).
        head.remove_header(&header::TRANSFER_ENCODING);
    }
    if session.is_body_done() {
        // No attempt can follow, so the memory is freed before a long stream runs.
        forward.dispatch.body = None;
        forward.dispatch.request.scan.tape.clear();
    }
    Ok(())
}

/// The outlet of a success that is not compressed.
fn outlet(session: &Session, forward: &Forward, framing: Framing) -> Outlet {
    let leg = forward.dispatch.attempts.leg();
    let facts = forward.dispatch.request.facts(&session.req_header().headers, leg);
    let rewriter = ResponseRewriter::new(&leg.provider.response, &facts, framing);
    if framing == Framing::Json && leg.provider.errors == ErrorShape::Reshape {
        return Outlet::PossibleError(PossibleError::new(rewriter));
    }
    rewriter.map_or(Outlet::Pass, Outlet::Rewrite)
}
