//! The end of a request: what its client gets when it fails, and what is settled and recorded however it ends.

use bytes::Bytes;
use pingora::{Error, ErrorSource, ErrorType};
use pingora_proxy::Session;

use crate::{
    domain::faults::{outcome::Outcome, refusal::Refusal},
    gateway::{
        answer::{body, broken_off},
        attempt::{deadline::Fate, interruption::Interruption},
        entry::Entry,
        exchange::{Exchange, Leftover, Stage},
        forward::Forward,
        keepalive,
        outlet::{Outlet, withheld_error::WholeError},
        panics, reply,
        request::gather,
        ticket::Cause,
    },
    providers::sessions::Sessions,
};

/// The status of a request whose client has none.
const NO_STATUS: u16 = 0;

/// Ends a request that Pingora is done with.
pub(crate) async fn finish(sessions: &Sessions, session: &mut Session, exchange: &mut Exchange) {
    match exchange.take_stage() {
        Stage::Forwarding(mut forward) => {
            if matches!(forward.outlet, Outlet::WholeError(_)) {
                send_withheld(session, &mut forward).await;
            } else if forward.has_not_begun() {
                forward.abandon_answer();
                refuse_with(session, &Refusal::ProviderBroken, &mut forward).await;
            }
            forward.settle(sessions);
        }
        Stage::Ended(Leftover::Reusable) => keepalive::park(session).await,
        Stage::Arrived(_) | Stage::Ended(Leftover::Pingoras) => {}
    }
}

/// Sends the client a complete error answer. Pingora only has to end the request after that, so both connections stay
/// usable; an error return from a filter would close them.
async fn send_withheld(session: &mut Session, forward: &mut Forward) -> (u16, Leftover) {
    let Outlet::WholeError(WholeError { head, body }) = std::mem::take(&mut forward.outlet) else {
        return (NO_STATUS, Leftover::Pingoras);
    };
    // Charge first: the client may send its next request at once.
    forward.ticket.charge(Cause::Over);
    let status = head.status.as_u16();
    match reply::send(session, head, body).await {
        Ok(()) => (status, Leftover::Reusable),
        Err(_) => {
            forward.ticket.client_left();
            (NO_STATUS, Leftover::Pingoras)
        }
    }
}

/// Ends a failed request. Before the answer's head the client gets a refusal; after it the protocol's in-band error,
/// or, if it has none, a broken connection. The end never looks like a success. Returns the status that the client got.
pub(crate) async fn fail(sessions: &Sessions, session: &mut Session, error: &Error, exchange: &mut Exchange) -> u16 {
    let (status, leftover) = match exchange.take_stage() {
        Stage::Forwarding(mut forward) => {
            let ended = fail_forward(session, error, &mut forward).await;
            forward.settle(sessions);
            ended
        }
        Stage::Arrived(arrived) => (
            fail_arrived(session, error, exchange, arrived.entry).await,
            Leftover::Pingoras,
        ),
        Stage::Ended(_) => (fail_without_record(session, error, exchange).await, Leftover::Pingoras),
    };
    exchange.stage = Stage::Ended(leftover);
    status
}

async fn fail_forward(session: &mut Session, error: &Error, forward: &mut Forward) -> (u16, Leftover) {
    forward.ticket.because(error.etype().as_str());
    let is_gone = reply::has_begun(session) || body_fault(error).is_none();
    if client_left(error) && is_gone {
        forward.ticket.client_left();
        return (NO_STATUS, Leftover::Pingoras);
    }
    if forward.recipient.has_left() {
        forward.note_client();
        return (NO_STATUS, Leftover::Pingoras);
    }
    if matches!(forward.outlet, Outlet::WholeError(_)) {
        return send_withheld(session, forward).await;
    }
    if forward.has_not_begun() {
        forward.abandon_answer();
    }
    match reply::has_begun(session) {
        true => break_off(session, error, forward).await,
        false => refuse(session, error, forward).await,
    }
}

async fn fail_arrived(session: &mut Session, error: &Error, exchange: &Exchange, mut entry: Entry) -> u16 {
    entry.cause = Some(error.etype().as_str());
    if client_left(error) || reply::has_begun(session) {
        entry.close(Outcome::ClientGone);
        return NO_STATUS;
    }
    // The failed hook may have left the connection in any state, such as a half-read body.
    session.set_keepalive(None);
    // A failed write does not change the record.
    let _ = reply::refuse(session, &exchange.live, exchange.shape, entry, &Refusal::Internal).await;
    Refusal::Internal.status()
}

/// The log record was lost with the failed hook; the client still gets an answer.
async fn fail_without_record(session: &mut Session, error: &Error, exchange: &Exchange) -> u16 {
    if client_left(error) || reply::has_begun(session) {
        return NO_STATUS;
    }
    session.set_keepalive(None);
    let reply = Refusal::Internal.reply(exchange.shape, &exchange.request_id);
    match reply::write(session, reply, &exchange.request_id).await {
        Ok(()) => Refusal::Internal.status(),
        Err(_) => NO_STATUS,
    }
}

fn client_left(error: &Error) -> bool {
    *error.esource() == ErrorSource::Downstream && *error.etype() != ErrorType::InvalidHTTPHeader
}

/// What is wrong with the end of the client's body, for which the provider is asked already.
fn body_fault(error: &Error) -> Option<Refusal> {
    let is_clients = *error.esource() == ErrorSource::Downstream;
    is_clients.then(|| gather::refusal_of(error)).flatten()
}

/// Answers with a refusal, because nothing of an answer has reached the client.
async fn refuse(session: &mut Session, error: &Error, forward: &mut Forward) -> (u16, Leftover) {
    let refusal = Interruption::refusal(error).cloned().or_else(|| body_fault(error));
    let refusal = refusal.unwrap_or_else(|| refusal_of(error, forward));
    refuse_with(session, &refusal, forward).await
}

async fn refuse_with(session: &mut Session, refusal: &Refusal, forward: &mut Forward) -> (u16, Leftover) {
    forward.ticket.charge(Cause::Refused(refusal));
    let request_id = forward.ticket.request_id();
    let reply = refusal.reply(forward.dispatch.error_form(), request_id);
    match reply::write(session, reply, request_id).await {
        Ok(()) => (refusal.status(), Leftover::Reusable),
        Err(_) => (NO_STATUS, Leftover::Pingoras),
    }
}

/// Ends an answer that has begun.
async fn break_off(session: &mut Session, error: &Error, forward: &mut Forward) -> (u16, Leftover) {
    let panicked = *error.etype() == panics::PANICKED;
    if !panicked && let Some(rest) = body::rest_of_whole(forward) {
        forward.ticket.charge(Cause::Over);
        return (forward.ticket.meter.status(), write_last(session, rest).await);
    }
    let (outcome, failure) = broken_off::failure_of(forward, panicked);
    forward.ticket.charge(Cause::Failed(outcome));
    let leftover = match forward.ticket.meter.failure_tail(&failure) {
        Some(tail) => {
            // What is buffered of an event goes first; the tail completes it.
            let mut last = forward.rest();
            last.extend_from_slice(&tail);
            write_last(session, last.into()).await
        }
        None => {
            session.downstream_session.shutdown().await;
            Leftover::Pingoras
        }
    };
    (Refusal::ProviderBroken.status(), leftover)
}

/// Writes the end of an answer. If this fails the connection is broken, which tells the client the same.
async fn write_last(session: &mut Session, bytes: Bytes) -> Leftover {
    match session.write_response_body(Some(bytes), true).await {
        Ok(()) => Leftover::Reusable,
        Err(_) => Leftover::Pingoras,
    }
}

fn refusal_of(error: &Error, forward: &Forward) -> Refusal {
    let attempt = &forward.dispatch.attempt;
    if attempt.fate() == Fate::Stopped {
        return Refusal::Stopping;
    }
    if *error.etype() == panics::PANICKED || *error.esource() == ErrorSource::Internal {
        return Refusal::Internal;
    }
    if attempt.fate() == Fate::Expired {
        return Refusal::ProviderTimeout;
    }
    match error.etype() {
        ErrorType::ReadTimedout | ErrorType::WriteTimedout => Refusal::ProviderTimeout,
        _ if !attempt.is_connected() => Refusal::ProviderUnreachable,
        _ => Refusal::ProviderBroken,
    }
}
