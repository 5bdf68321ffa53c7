//! The end of an attempt that failed, and of a request, however it ends: its client's last bytes, what is settled and recorded.

use bytes::Bytes;
use pingora::{Error, ErrorSource, ErrorType};
use pingora_proxy::Session;

use crate::{
    domain::{
        faults::{end::End, refusal::Refusal},
        wire::protocol::{Break, Framing},
    },
    gateway::{
        answer::{beginning, error},
        attempt::{Verdict, deadline::Fate},
        exchange::{Exchange, Stage},
        forward::Forward,
        keepalive,
        outlet::{Outlet, withheld_error::WholeError},
        panics, reply,
        request::gather,
        upstream::verdict::{self, Event},
    },
    providers::sessions::Sessions,
    telemetry::metrics::Metrics,
};

/// The status of a request whose client has none.
const NO_STATUS: u16 = 0;

/// The last bytes of a request for its client.
enum LastBytes {
    /// None: the client has them, or has left.
    None,
    /// A complete error answer of the provider.
    Error(Box<WholeError>),
    /// A refusal, because nothing of an answer has reached the client.
    Refusal(Refusal),
    /// The rest of a complete answer.
    Rest(Bytes),
    /// The protocol's in-band error; `None` where it has none.
    Break(Option<Bytes>),
}

/// An attempt has failed: another one follows, or the error answer as far as it came, or the end of the request.
pub(crate) fn attempt_failed(
    metrics: &Metrics,
    session: &mut Session,
    forward: &mut Forward,
    error: Box<Error>,
    reused: bool,
) -> Box<Error> {
    let mut error = beginning::catch_up(session, forward).err().unwrap_or(error);
    let is_undecided = forward.attempt.verdict == Verdict::Proceed;
    let is_stopped = forward.attempt.fate() == Fate::Stopped;
    let is_providers = *error.esource() == ErrorSource::Upstream;
    if is_undecided && is_providers && !is_stopped && matches!(forward.outlet, Outlet::Withheld(_)) {
        match error::conclude(metrics, forward) {
            Ok(()) => {
                error.set_retry(false);
                return error;
            }
            Err(verdict) => error = verdict,
        }
    } else if is_undecided {
        let event = Event::Failed { error: &error, reused };
        verdict::next(metrics, forward, reply::has_begun(session), event);
    }
    let again = forward.attempt.verdict == Verdict::Retry && !is_stopped && !reply::has_begun(session);
    error.set_retry(again);
    if again {
        forward.abandon_answer();
    }
    error
}

/// Ends a request that Pingora is done with.
pub(crate) async fn finish(sessions: &Sessions, session: &mut Session, exchange: &mut Exchange) {
    match exchange.take_stage() {
        Stage::Forwarding(mut forward) => {
            let last = last_of_passed(&mut forward);
            forward.settle();
            write(session, &mut forward, last).await;
            forward.finish(sessions, &mut exchange.log);
        }
        Stage::Ended if exchange.park => keepalive::park(session).await,
        Stage::Arrived(_) | Stage::Ended => {}
    }
}

/// Ends a failed request. Before the answer's head the client gets a refusal; after it the protocol's in-band error,
/// or, if it has none, a broken connection. The end never looks like a success. Returns the status that the client got.
pub(crate) async fn fail(sessions: &Sessions, session: &mut Session, error: &Error, exchange: &mut Exchange) -> u16 {
    exchange.log.cause = Some(error.etype().as_str());
    match exchange.take_stage() {
        Stage::Forwarding(mut forward) => {
            let last = last_of_failed(session, error, &mut forward);
            forward.settle();
            let (status, is_whole) = write(session, &mut forward, last).await;
            exchange.park = is_whole;
            forward.finish(sessions, &mut exchange.log);
            status
        }
        Stage::Ended if exchange.log.is_closed() => fail_recorded(session, error, exchange).await,
        // Ended and open: a hook panicked before the end of the admission.
        Stage::Arrived(_) | Stage::Ended => fail_open(session, error, exchange).await,
    }
}

/// An error answer is sent once Pingora is done with the provider: both connections stay usable; an error return from a filter
/// would close them.
fn last_of_passed(forward: &mut Forward) -> LastBytes {
    if let Some(error) = take_error(forward) {
        return LastBytes::Error(error);
    }
    match forward.has_not_begun() {
        true => {
            forward.abandon_answer();
            refuse(forward, Refusal::ProviderBroken)
        }
        false => LastBytes::None,
    }
}

fn last_of_failed(session: &Session, error: &Error, forward: &mut Forward) -> LastBytes {
    let has_begun = reply::has_begun(session);
    if client_left(error) && (has_begun || body_fault(error).is_none()) {
        forward.decide_client_left();
        return LastBytes::None;
    }
    if forward.client.has_left() {
        forward.note_client();
        return LastBytes::None;
    }
    if let Some(error) = take_error(forward) {
        return LastBytes::Error(error);
    }
    if forward.has_not_begun() {
        forward.abandon_answer();
    }
    if has_begun {
        return break_off(error, forward);
    }
    let refusal = refusal_of(error, forward);
    refuse(forward, refusal)
}

fn take_error(forward: &mut Forward) -> Option<Box<WholeError>> {
    match std::mem::take(&mut forward.outlet) {
        Outlet::WholeError(error) => Some(error),
        other => {
            forward.outlet = other;
            None
        }
    }
}

fn refuse(forward: &mut Forward, refusal: Refusal) -> LastBytes {
    forward.decide(refusal.clone().into());
    LastBytes::Refusal(refusal)
}

/// Ends an answer that has begun.
fn break_off(error: &Error, forward: &mut Forward) -> LastBytes {
    let has_panicked = *error.etype() == panics::PANICKED;
    if !has_panicked && let Some(rest) = rest_of_complete(forward) {
        return LastBytes::Rest(rest);
    }
    let why = if has_panicked {
        Break::Internal
    } else if forward.ticket.is_cut() {
        Break::LimitReached
    } else {
        forward.attempt.fate().broken().unwrap_or(Break::ProviderCut)
    };
    forward.decide(End::Broken(why));
    LastBytes::Break(forward.meter.failure_tail(why).map(|tail| {
        // What is buffered of an event goes first; the tail completes it.
        let mut last = forward.rest();
        last.extend_from_slice(&tail);
        last.into()
    }))
}

/// The bytes still missing from a complete answer whose provider connection broke. `None` if the answer is not
/// complete, or if only the connection's end delimits it.
fn rest_of_complete(forward: &mut Forward) -> Option<Bytes> {
    let meter = &mut forward.meter;
    let is_stream = meter.status() < 400 && matches!(meter.framing(), Some(Framing::Sse | Framing::JsonArray));
    if !is_stream || meter.is_coded() || !meter.is_complete() {
        return None;
    }
    meter.body_ended();
    let closing = meter.closing();
    let mut rest = forward.rest();
    rest.extend(closing.unwrap_or_default());
    Some(rest.into())
}

/// Writes the last bytes. Returns the status that the client got, and whether it has a complete answer, so that its connection
/// can carry further requests.
async fn write(session: &mut Session, forward: &mut Forward, last: LastBytes) -> (u16, bool) {
    match last {
        LastBytes::None => (NO_STATUS, false),
        LastBytes::Error(error) => {
            let WholeError { head, body } = *error;
            let status = head.status.as_u16();
            if reply::send(session, head, body).await.is_ok() {
                return (status, true);
            }
            forward.decide_client_left();
            (NO_STATUS, false)
        }
        LastBytes::Refusal(refusal) => {
            let request_id = &forward.ticket.request_id;
            let reply = refusal.reply(forward.error_form(), request_id);
            match reply::write(session, reply, request_id).await {
                Ok(()) => (refusal.status(), true),
                Err(_) => (NO_STATUS, false),
            }
        }
        LastBytes::Rest(rest) => (forward.meter.status(), write_last(session, rest).await),
        LastBytes::Break(Some(tail)) => (Refusal::ProviderBroken.status(), write_last(session, tail).await),
        LastBytes::Break(None) => {
            session.downstream_session.shutdown().await;
            (Refusal::ProviderBroken.status(), false)
        }
    }
}

/// Writes the end of an answer. If this fails the connection is broken, which tells the client the same.
async fn write_last(session: &mut Session, bytes: Bytes) -> bool {
    session.write_response_body(Some(bytes), true).await.is_ok()
}

/// Answers a request whose line in the access log is open, and closes the line.
async fn fail_open(session: &mut Session, error: &Error, exchange: &mut Exchange) -> u16 {
    if client_left(error) || reply::has_begun(session) {
        exchange.log.close(&End::ClientLeft);
        return NO_STATUS;
    }
    // The failed hook may have left the connection in any state, such as a half-read body.
    session.set_keepalive(None);
    // A failed write does not change the record.
    let _ = reply::refuse(session, exchange, Refusal::Internal).await;
    Refusal::Internal.status()
}

/// Answers a request whose line in the access log is closed.
async fn fail_recorded(session: &mut Session, error: &Error, exchange: &Exchange) -> u16 {
    if client_left(error) || reply::has_begun(session) {
        return NO_STATUS;
    }
    session.set_keepalive(None);
    let reply = Refusal::Internal.reply(exchange.protocol, &exchange.request_id);
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

/// The refusal for a request of which no attempt has brought an answer.
fn refusal_of(error: &Error, forward: &Forward) -> Refusal {
    let attempt = &forward.attempt;
    if let Verdict::Refuse(refusal) = &attempt.verdict {
        return refusal.clone();
    }
    if let Some(refusal) = body_fault(error) {
        return refusal;
    }
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
