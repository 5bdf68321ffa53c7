//! Handles a provider's answer on its way to the client: head, body and errors.

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
        request::body::RequestBody,
        upstream::verdict::{self, AttemptEvent},
    },
    telemetry::metrics::Metrics,
};

/// Handles the head of the provider's answer, final or interim. An `Err` result ends the attempt.
pub(crate) fn accept(metrics: &Metrics, forward: &mut Forward, head: &mut ResponseHeader) -> Result<()> {
    forward.attempt.on_byte(clock::instant());
    if head.status == StatusCode::SWITCHING_PROTOCOLS {
        // Pingora regards this status as final and would relay bytes of an unknown protocol. weir never requests a switch of
        // protocols, so the answer is unusable.
        return Err(forward.refuse_answer());
    }
    if head.status.is_informational() {
        *head = fields::interim_head()?;
        return Ok(());
    }
    forward.attempt.on_head();
    // Called before the answer is judged: if the client has disconnected, the request ends for that reason and not because of the
    // provider.
    forward.check_client();
    let status = head.status.as_u16();
    if forward.provider().error_rules.needs_body(status) {
        return error::withhold(metrics, forward, head, ErrorJudgement::Not);
    }
    if head.status.is_success() {
        // Whether a success contains an answer is decided when the body begins.
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

/// Ends the attempt because the provider answered with a redirect, and logs an error for the operator. weir never follows a
/// redirect, because it would send the operator's credential to the redirect's target. The target is neither logged nor returned,
/// because it may contain anything.
fn refuse_redirect(forward: &mut Forward, status: u16) -> Box<Error> {
    tracing::error!(
        request_id = %forward.ticket.request_id,
        provider = %forward.provider().name,
        status,
        "the provider answered with a redirect, which weir never follows; if the provider's address has changed, set the new \
         address as `base_url` of the provider in weir.toml, or in the URLs of the provider file"
    );
    let refusal = Refusal::ProviderRedirected { status };
    let context = "a redirect from the provider";
    forward.refuse(refusal, ErrorType::InvalidHTTPHeader, context).into_up()
}

/// Prepares the head of a successful answer for the client, chooses the observer of the answer's body, and holds the head until
/// the body begins.
pub(crate) fn prepare(session: &mut Session, forward: &mut Forward, head: &mut ResponseHeader) -> Result<()> {
    if head.status.is_informational() {
        return Ok(());
    }
    fields::adapt(forward, head)?;
    let operation = forward.attempts.endpoint().operation;
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

/// Chooses the outlet for a body with this framing, and adapts the head's length and transfer coding to the outlet.
pub(crate) fn shape(
    session: &Session,
    forward: &mut Forward,
    head: &mut ResponseHeader,
    framing: AnswerFraming,
) -> Result<()> {
    let is_plain = !forward.meter.is_compressed();
    forward.outlet = match is_plain {
        true => outlet(session, forward, framing),
        false if forward.is_translated() => return Err(forward.refuse_answer()),
        false => Outlet::Pass,
    };
    if let Outlet::Translate(answer) = &forward.outlet {
        head.insert_header(header::CONTENT_TYPE, HeaderValue::from_static(answer.content_type()))?;
        fields::set_translation(Some(answer.header()), head)?;
    }
    let is_edited = forward.outlet.may_change_length();
    if is_edited || is_plain && matches!(framing, AnswerFraming::Sse | AnswerFraming::JsonArray) {
        // The declared length may become wrong, because the body may be edited, reshaped, or followed by an in-band error.
        head.remove_header(&header::CONTENT_LENGTH);
    }
    // Pingora sets the version of a head that arrives over HTTP/2, but Pingora gets an interim head instead of this one.
    head.set_version(Version::HTTP_11);
    let is_delimited = |name: &HeaderName| head.headers.contains_key(name);
    if !is_delimited(&header::CONTENT_LENGTH) && !is_delimited(&header::TRANSFER_ENCODING) {
        head.insert_header(header::TRANSFER_ENCODING, HeaderValue::from_static("chunked"))?;
    }
    if session.req_header().version == Version::HTTP_10 {
        // HTTP/1.0 has no chunked coding. Without a length, the end of the connection delimits the answer (RFC 9112 section 6.1).
        head.remove_header(&header::TRANSFER_ENCODING);
    }
    Ok(())
}

/// Releases the held head to the client. If the body's framing differs from the one that the head announces (`announced`), adapts
/// head and outlet first.
pub(crate) fn release(session: &mut Session, forward: &mut Forward, announced: AnswerFraming) -> Result<()> {
    let gate = Arc::clone(&forward.client.write_gate);
    match forward.meter.framing() {
        Some(framing) if framing != announced => match gate.head.is_waiting() {
            true => gate.head.edit(|head| shape(session, forward, head, framing))?,
            false => forward.outlet = Outlet::Pass,
        },
        _ => {}
    }
    if let Outlet::Translate(answer) = &forward.outlet
        && answer.is_whole()
        && gate.head.is_waiting()
    {
        // The complete answer has been read, so the parts of it that the client does not get are known.
        gate.head
            .edit(|head| fields::set_translation(Some(answer.header()), head))?;
    }
    gate.head.release(&mut session.downstream_session)?;
    if session.is_body_done() {
        // No further attempt can follow, so the request body's memory is freed before the answer streams.
        forward.free_body();
    }
    Ok(())
}

/// Chooses the outlet for a successful answer that is not compressed.
fn outlet(session: &Session, forward: &Forward, framing: AnswerFraming) -> Outlet {
    let endpoint = forward.attempts.endpoint();
    let facts = forward.request.facts(&session.req_header().headers, endpoint);
    let rewriter = ResponseRewriter::new(&endpoint.provider.response, &facts, framing);
    if let Some(translation) = forward.body.as_ref().and_then(RequestBody::translation) {
        let answer = translation.answer(&forward.request, &forward.ticket.request_id, (framing, rewriter));
        return Outlet::Translate(Box::new(answer));
    }
    if framing == AnswerFraming::Json && endpoint.provider.errors == ErrorShape::Reshape {
        return Outlet::PossibleError(Box::new(PossibleError::new(rewriter)));
    }
    rewriter.map_or(Outlet::Pass, |rewriter| Outlet::Rewrite(Box::new(rewriter)))
}
