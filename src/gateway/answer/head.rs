//! The answer's head: what it means, and what of it the client gets.

use http::{StatusCode, header};
use pingora::{Result, http::ResponseHeader};
use pingora_proxy::Session;

use crate::{
    domain::wire::protocol::framing_of,
    edges::clock,
    gateway::{
        answer::{beginning, error, fields, interim, redirect, shape},
        attempt::{interruption::Interruption, verdict},
        coding,
        forward::Forward,
        outlet::withheld_error::Judged,
    },
    telemetry::metrics::Metrics,
};

/// The provider's answer has a head. An error return ends the attempt.
pub(crate) fn accept(metrics: &Metrics, forward: &mut Forward, head: &mut ResponseHeader) -> Result<()> {
    forward.dispatch.attempt.byte_seen(clock::instant());
    if head.status == StatusCode::SWITCHING_PROTOCOLS {
        // Final for Pingora, which would relay bytes of no known protocol. Nobody has asked for a switch.
        return Err(Interruption::unusable());
    }
    if head.status.is_informational() {
        *head = interim::head()?;
        return Ok(());
    }
    forward.dispatch.attempt.head_seen();
    // Without a client no further attempt follows, so what the provider answers now is no measure of it.
    forward.note_client();
    let status = head.status.as_u16();
    if forward.dispatch.provider().error_rules.concern(status) {
        return error::withhold(metrics, forward, head, Judged::Not);
    }
    if head.status.is_success() {
        // A body decides, when it begins.
        let has_none = forward.dispatch.attempt.is_bodiless() || fields::say_no_body(head);
        return match has_none {
            true => Err(beginning::no_answer(metrics, forward)),
            false => Ok(()),
        };
    }
    let is_error = status >= 400;
    let refused = forward.dispatch.provider().refuses_credential(status, None);
    let asked_pause = is_error.then(|| error::asked_pause(head)).flatten();
    let has_left = forward.recipient.has_left();
    verdict::act(metrics, &mut forward.dispatch, has_left, status, refused, asked_pause)?;
    if is_error {
        return error::withhold(metrics, forward, head, Judged::ByStatus);
    }
    Err(redirect::refuse(forward, head))
}

/// Prepares the head of a success for the client, chooses the observer of its body, and holds the head until that begins.
pub(crate) fn prepare(session: &mut Session, forward: &mut Forward, head: &mut ResponseHeader) -> Result<()> {
    if head.status.is_informational() {
        return Ok(());
    }
    fields::fit(forward, head)?;
    let operation = forward.dispatch.request.operation;
    let content_type = head
        .headers
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok());
    let framing = framing_of(operation, content_type);
    let (status, coded) = (head.status.as_u16(), coding::of_answer(&head.headers));
    forward
        .ticket
        .meter
        .head_seen(status, operation.protocol(), framing, &coded);
    shape::shape(session, forward, head, framing)?;
    beginning::hold(session, forward, head, framing)
}
