//! The answer's head: what it means, and which part of it the client gets.

use http::{StatusCode, header};
use pingora::{Error, ErrorType, Result, http::ResponseHeader};
use pingora_proxy::Session;

use crate::{
    domain::{faults::refusal::Refusal, wire::protocol::framing_from_content_type},
    edges::clock,
    gateway::{
        answer::{beginning, error, fields, interim, shape},
        coding,
        forward::Forward,
        outlet::withheld_error::ErrorJudgement,
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
        *head = interim::interim_head()?;
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
    shape::shape(session, forward, head, framing)?;
    beginning::hold_head(session, forward, head, framing)
}
