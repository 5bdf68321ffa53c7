//! The answer's head: what it means, and what of it the client gets.

use http::{StatusCode, header};
use pingora::{Error, ErrorType, Result, http::ResponseHeader};
use pingora_proxy::Session;

use crate::{
    domain::{faults::refusal::Refusal, wire::protocol::framing_of},
    edges::clock,
    gateway::{
        answer::{beginning, error, fields, interim, shape},
        coding,
        forward::Forward,
        outlet::withheld_error::Judged,
        upstream::verdict::{self, Event},
    },
    telemetry::metrics::Metrics,
};

/// The provider's answer has a head. An error return ends the attempt.
pub(crate) fn accept(metrics: &Metrics, forward: &mut Forward, head: &mut ResponseHeader) -> Result<()> {
    forward.attempt.byte_seen(clock::instant());
    if head.status == StatusCode::SWITCHING_PROTOCOLS {
        // Final for Pingora, which would relay bytes of no known protocol. Nobody has asked for a switch.
        return Err(forward.refuse_answer());
    }
    if head.status.is_informational() {
        *head = interim::head()?;
        return Ok(());
    }
    forward.attempt.head_seen();
    // Without a client no further attempt follows, so what the provider answers now is no measure of it.
    forward.note_client();
    let status = head.status.as_u16();
    if forward.provider().error_rules.concern(status) {
        return error::withhold(metrics, forward, head, Judged::Not);
    }
    if head.status.is_success() {
        // A body decides, when it begins.
        let has_none = forward.attempt.is_bodiless() || fields::say_no_body(head);
        return match has_none {
            true => Err(beginning::no_answer(metrics, forward)),
            false => Ok(()),
        };
    }
    let is_error = status >= 400;
    let answered = Event::Answered {
        status,
        credential_refused: forward.provider().refuses_credential(status, None),
        pause: is_error.then(|| error::asked_pause(head)).flatten(),
    };
    verdict::after_answer(metrics, forward, answered)?;
    if is_error {
        return error::withhold(metrics, forward, head, Judged::ByStatus);
    }
    Err(refuse_redirect(forward, status))
}

/// A redirect is never followed, because the operator's credential would go with it: it ends the attempt, and the operator gets an
/// error in the log. The redirect's target is neither logged nor returned, since it may contain anything.
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

/// Prepares the head of a success for the client, chooses the observer of its body, and holds the head until that begins.
pub(crate) fn prepare(session: &mut Session, forward: &mut Forward, head: &mut ResponseHeader) -> Result<()> {
    if head.status.is_informational() {
        return Ok(());
    }
    fields::fit(forward, head)?;
    let operation = forward.request.operation;
    let content_type = head
        .headers
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok());
    let framing = framing_of(operation, content_type);
    let (status, coded) = (head.status.as_u16(), coding::of_answer(&head.headers));
    forward.meter.head_seen(status, operation.protocol(), framing, &coded);
    shape::shape(session, forward, head, framing)?;
    beginning::hold(session, forward, head, framing)
}
