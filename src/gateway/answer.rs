//! A provider's answer on its way to the client.

pub(crate) mod beginning;
pub(crate) mod body;
pub(crate) mod error;
pub(crate) mod fields;

use std::sync::Arc;

use http::{HeaderName, HeaderValue, StatusCode, Version, header};
use pingora::{Error, ErrorType, Result, http::ResponseHeader};
use pingora_proxy::Session;

use crate::{
    domain::{
        faults::refusal::Refusal,
        rules::{ErrorShape, ResponseRewriter},
        wire::protocol::{AnswerFraming, framing_from_content_type},
    },
    edges::clock,
    gateway::{
        coding,
        forward::Forward,
        outlet::{ErrorJudgement, Outlet, PossibleError},
        upstream::verdict::{self, AttemptEvent},
    },
    telemetry::metrics::Metrics,
};

/// Handles the head of the provider's answer. An error return ends the attempt.
pub(crate) fn accept(metrics: &Metrics, forward: &mut Forward, head: &mut ResponseHeader) -> Result<()> {
    forward.attempt.on_byte(clock::instant());
    if head.status == StatusCode::SWITCHING_PROTOCOLS {
        // Pingora treats it as final and would relay bytes of an unknown protocol. weir never asks for a switch.
        return Err(forward.refuse_answer());
    }
    if head.status.is_informational() {
        *head = fields::interim_head()?;
        return Ok(());
    }
    forward.attempt.on_head();
    // Noted first: without a client no further attempt follows, so the answer is not held against the provider.
    forward.check_client();
    let status = head.status.as_u16();
    if forward.provider().error_rules.needs_body(status) {
        return error::withhold(metrics, forward, head, ErrorJudgement::Not);
    }
    if head.status.is_success() {
        // The body decides when it begins.
        let has_none = forward.attempt.is_bodiless() || fields::announces_no_body(head);
        return match has_none {
            true => Err(beginning::no_answer(metrics, forward)),
            false => Ok(()),
        };
    }
    let is_error = status >= 400;
    let answered = AttemptEvent::Answered {
        status,
        credential_refused: forward.provider().refuses_credential(status, None),
        pause: is_error.then(|| error::asked_pause(head)).flatten(),
    };
    verdict::decide_after_answer(metrics, forward, answered)?;
    if is_error {
        return error::withhold(metrics, forward, head, ErrorJudgement::ByStatus);
    }
    Err(refuse_redirect(forward, status))
}

/// Ends the attempt because of a redirect, and logs an error for the operator. A redirect is never followed, because the
/// operator's credential would go with it. Its target is neither logged nor returned, because it may contain anything.
fn refuse_redirect(forward: &mut Forward, status: u16) -> Box<Error> {
    tracing::error!(
        request_id = %forward.ticket.request_id,
        provider = %forward.provider().name,
        status,
        "the provider answered with a redirect, which is never followed: if it has moved, set its `base_url` in weir.toml, or the \
         URLs in its file, to its new address"
    );
    let refusal = Refusal::ProviderRedirected { status };
    let context = "a redirect from the provider";
    forward.refuse(refusal, ErrorType::InvalidHTTPHeader, context).into_up()
}

/// Prepares the head of a success for the client, chooses the observer of its body, and holds the head until the body begins.
pub(crate) fn prepare(session: &mut Session, forward: &mut Forward, head: &mut ResponseHeader) -> Result<()> {
    if head.status.is_informational() {
        return Ok(());
    }
    fields::adapt(forward, head)?;
    let operation = forward.request.operation;
    let content_type = head
        .headers
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok());
    let framing = framing_from_content_type(operation, content_type);
    let (status, coded) = (head.status.as_u16(), coding::of_answer(&head.headers));
    forward.meter.on_head(status, operation.protocol(), framing, &coded);
    shape(session, forward, head, framing)?;
    beginning::hold_head(session, forward, head, framing)
}

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
