//! Handles the end of a failed attempt and of every forwarded request: sends the last bytes to the client, and settles and
//! records the request. A request that is refused before it is forwarded is answered by [`reply::refuse`].

use bytes::Bytes;
use pingora::{Error, ErrorSource, ErrorType};
use pingora_proxy::Session;

use crate::{
    domain::{
        faults::{End, refusal::Refusal},
        wire::protocol::{AnswerFraming, Break},
    },
    gateway::{
        self,
        answer::{beginning, error},
        attempt::{Verdict, deadline::Fate},
        client_stream,
        exchange::{Exchange, RequestStage},
        forward::Forward,
        outlet::{ErrorReply, Outlet},
        reply,
        request::read_body,
        turn_link::turn_link,
        upstream::verdict::{self, AttemptEvent},
    },
    providers::sessions::StateRegistry,
    telemetry::metrics::Metrics,
};

/// The status of a request whose client got no answer.
const NO_STATUS: u16 = 0;

/// The last bytes that the client of a request gets.
enum LastBytes {
    /// No bytes: the client has all of the answer, or has disconnected.
    None,
    /// A complete error answer from the provider.
    Error(Box<ErrorReply>),
    /// A refusal by weir, because no part of an answer has reached the client.
    Refusal(Refusal),
    /// The rest of a complete answer.
    Rest(Bytes),
    /// The protocol's in-band error; `None` if the protocol has none. In that case, weir breaks the connection instead.
    Break(Option<Bytes>),
}

/// Handles a failed attempt. Either another attempt follows, or the client gets the part of an error answer that has arrived, or
/// the request ends. Returns Pingora's error, which says whether another attempt follows.
pub(crate) fn on_attempt_failed(
    metrics: &Metrics,
    session: &mut Session,
    forward: &mut Forward,
    error: Box<Error>,
    reused: bool,
) -> Box<Error> {
    let mut error = beginning::write_sent_head(session, forward).err().unwrap_or(error);
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
        let is_unread = turn_link(session).is_some_and(|link| link.is_unread_on_line());
        let event = AttemptEvent::Failed {
            error: &error,
            reused,
            is_unread,
        };
        verdict::decide(metrics, forward, reply::has_begun(session), event);
    }
    let again = forward.attempt.verdict == Verdict::Retry && !is_stopped && !reply::has_begun(session);
    error.set_retry(again);
    if again {
        forward.abandon_answer();
    }
    error
}

/// Ends a request after Pingora has finished with it.
pub(crate) async fn finish(sessions: &StateRegistry, session: &mut Session, exchange: &mut Exchange) {
    match exchange.take_stage() {
        RequestStage::Forwarding(mut forward) => {
            let last = last_bytes_of_passed(&mut forward);
            forward.settle();
            write_last_bytes(session, &mut forward, last).await;
            forward.finish(sessions, &mut exchange.log);
        }
        RequestStage::Ended if exchange.park => client_stream::park_connection(session).await,
        RequestStage::Arrived(_) | RequestStage::Ended => {}
    }
}

/// Ends a failed request. Before the answer's head, the client gets a refusal. After the head, it gets the protocol's in-band
/// error, or a broken connection if the protocol has none. So the end never looks like a success. Returns the HTTP status that
/// describes the end; 0 if the client got no answer.
pub(crate) async fn fail(
    sessions: &StateRegistry,
    session: &mut Session,
    error: &Error,
    exchange: &mut Exchange,
) -> u16 {
    exchange.log.cause = Some(error.etype().as_str());
    match exchange.take_stage() {
        RequestStage::Forwarding(mut forward) => {
            let last = last_bytes_of_failed(session, error, &mut forward);
            forward.settle();
            let (status, is_whole) = write_last_bytes(session, &mut forward, last).await;
            exchange.park = is_whole;
            forward.finish(sessions, &mut exchange.log);
            status
        }
        RequestStage::Ended if exchange.log.is_closed() => fail_recorded(session, error, exchange).await,
        // At the stage `Ended`, an open line in the access log means that a hook panicked before the end of the admission.
        RequestStage::Arrived(_) | RequestStage::Ended => fail_open(session, error, exchange).await,
    }
}

/// Returns the last bytes for the client of a request that did not fail. These bytes can be a provider's error answer. weir sends
/// the error answer only now, after Pingora has finished with the provider. So the connections to the client and to the provider
/// stay usable. If a filter had ended the attempt with an error instead, Pingora would have closed both connections.
fn last_bytes_of_passed(forward: &mut Forward) -> LastBytes {
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

fn last_bytes_of_failed(session: &Session, error: &Error, forward: &mut Forward) -> LastBytes {
    let has_begun = reply::has_begun(session);
    if is_client_disconnect(error) && (has_begun || body_fault(error).is_none()) {
        forward.decide_client_left();
        return LastBytes::None;
    }
    if forward.client.has_left() {
        forward.check_client();
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

fn take_error(forward: &mut Forward) -> Option<Box<ErrorReply>> {
    match std::mem::take(&mut forward.outlet) {
        Outlet::ErrorReply(error) => Some(error),
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

/// Handles an answer that broke off after its beginning: decides how the answer ends, and returns its last bytes.
fn break_off(error: &Error, forward: &mut Forward) -> LastBytes {
    let has_panicked = *error.etype() == gateway::PANICKED;
    if !has_panicked && let Some(rest) = rest_of_complete(forward) {
        return LastBytes::Rest(rest);
    }
    let why = if has_panicked {
        Break::Internal
    } else if forward.ticket.must_stop() {
        Break::LimitReached
    } else {
        forward.attempt.fate().break_reason().unwrap_or(Break::ProviderCut)
    };
    forward.decide(End::Broken(why));
    LastBytes::Break(forward.failure_tail(why).map(|tail| {
        // The buffered part of an event is sent first, because the tail completes it.
        let mut last = match forward.is_translated() {
            true => Vec::new(),
            false => forward.remaining(),
        };
        last.extend_from_slice(&tail);
        last.into()
    }))
}

/// Returns the part of a complete answer that the client has not received because the connection to the provider broke. Returns
/// `None` if the answer or its translation is incomplete, or if only the end of the connection delimits the answer.
fn rest_of_complete(forward: &mut Forward) -> Option<Bytes> {
    let meter = &mut forward.meter;
    let is_stream =
        meter.status() < 400 && matches!(meter.framing(), Some(AnswerFraming::Sse | AnswerFraming::JsonArray));
    if !is_stream || meter.is_compressed() || !meter.is_complete() {
        return None;
    }
    meter.on_end();
    forward.rest_of_complete().map(Into::into)
}

/// Writes the last bytes. Returns the HTTP status that describes the end, and whether the client has a complete answer, so that
/// its connection can carry further requests.
async fn write_last_bytes(session: &mut Session, forward: &mut Forward, last: LastBytes) -> (u16, bool) {
    match last {
        LastBytes::None => (NO_STATUS, false),
        LastBytes::Error(error) => {
            let ErrorReply { head, body } = *error;
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
        LastBytes::Rest(rest) => (forward.meter.status(), write_end(session, rest).await),
        LastBytes::Break(Some(tail)) => (Refusal::ProviderBroken.status(), write_end(session, tail).await),
        LastBytes::Break(None) => {
            session.downstream_session.shutdown().await;
            (Refusal::ProviderBroken.status(), false)
        }
    }
}

/// Writes the end of an answer. Returns false if the client's connection broke; the client notices that itself.
async fn write_end(session: &mut Session, bytes: Bytes) -> bool {
    session.write_response_body(Some(bytes), true).await.is_ok()
}

/// Answers a failed request whose line in the access log is still open, and closes the line.
async fn fail_open(session: &mut Session, error: &Error, exchange: &mut Exchange) -> u16 {
    if is_client_disconnect(error) || reply::has_begun(session) {
        exchange.log.close(&End::ClientLeft);
        return NO_STATUS;
    }
    // The failed hook may have left the connection in any state, for example with a half-read body.
    session.set_keepalive(None);
    // The access-log line is closed even if this write fails.
    let _ = reply::refuse(session, exchange, Refusal::Internal).await;
    Refusal::Internal.status()
}

/// Answers a failed request whose line in the access log is already closed.
async fn fail_recorded(session: &mut Session, error: &Error, exchange: &Exchange) -> u16 {
    if is_client_disconnect(error) || reply::has_begun(session) {
        return NO_STATUS;
    }
    session.set_keepalive(None);
    let reply = Refusal::Internal.reply(exchange.protocol, &exchange.request_id);
    match reply::write(session, reply, &exchange.request_id).await {
        Ok(()) => Refusal::Internal.status(),
        Err(_) => NO_STATUS,
    }
}

fn is_client_disconnect(error: &Error) -> bool {
    *error.esource() == ErrorSource::Downstream && *error.etype() != ErrorType::InvalidHTTPHeader
}

/// Returns the refusal if the rest of the client's body, which was read after the attempt had begun, is faulty; `None` if the
/// error has another cause.
fn body_fault(error: &Error) -> Option<Refusal> {
    let is_clients = *error.esource() == ErrorSource::Downstream;
    is_clients.then(|| read_body::refusal_of(error)).flatten()
}

/// Returns the refusal for a request to which no attempt has produced an answer.
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
    if *error.etype() == gateway::PANICKED || *error.esource() == ErrorSource::Internal {
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
