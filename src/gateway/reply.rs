//! Sends weir's own answers, and decides what the client gets when a request fails.

pub mod greeting;
pub mod listing;
pub mod published;

use std::time::Duration;

use bytes::Bytes;
use http::{Method, Version, header};
use pingora::{Error, ErrorSource, ErrorType, Result, http::ResponseHeader};
use pingora_proxy::{FailToProxy, Session};

use crate::{
    domain::{
        outcome::Outcome,
        protocol::{ErrorForm, Protocol},
        refusal::{Refusal, Reply},
    },
    gateway::{
        answer::broken_off,
        answer::relay,
        attempt::deadline::Watch,
        entry::Entry,
        exchange::{Exchange, Forward, Stage},
        panics as guard,
        request::gather::GatherError,
        request::head::content_length,
    },
    live::Live,
};

/// An unread body up to this size is discarded after a refusal, so that the connection stays usable.
const DISCARD_BYTES_MAX: u64 = 64 * 1024;

/// How long discarding may take.
const DISCARD_WAIT: Duration = Duration::from_secs(1);

/// Answers with a refusal and closes the log record.
pub async fn refuse(
    session: &mut Session,
    live: &Live,
    shape: Protocol,
    mut entry: Entry,
    refusal: &Refusal,
) -> Result<()> {
    let reply = refusal.reply(form(live, shape, &entry), &entry.record.request_id);
    entry.record.response_bytes = reply.body.len() as u64;
    let request_id = entry.record.request_id.clone();
    entry.refused(refusal);
    if matches!(refusal, Refusal::BodyTimeout) {
        // The rest of the body will not arrive either.
        session.set_keepalive(None);
    }
    write(session, reply, &request_id).await
}

/// Whether the final head of the answer has been sent. An interim one (RFC 9110 section 15.2), such as `100 Continue`,
/// does not count.
pub fn has_begun(session: &Session) -> bool {
    session
        .response_written()
        .is_some_and(|head| !head.status.is_informational())
}

/// Sends an answer of weir's own that is not a refusal. A `reply` that is a refusal goes back to the caller with the
/// entry.
pub async fn give(
    session: &mut Session,
    shape: Protocol,
    mut entry: Entry,
    reply: Result<Reply, Refusal>,
) -> Result<Option<Forward>, (Entry, GatherError)> {
    let mut reply = match reply {
        Ok(reply) => reply,
        Err(refusal) => return Err((entry, refusal.into())),
    };
    entry.record.status = reply.status;
    let request_id = entry.record.request_id.clone();
    reply.headers.push((shape.request_id_header(), request_id.clone()));
    let outcome = match write(session, reply, &request_id).await {
        Ok(()) => Outcome::Ok,
        Err(_) => Outcome::ClientGone,
    };
    entry.close(outcome);
    Ok(None)
}

/// The error form of a refusal: that of the requested model's provider, once the model is known, else that of the
/// protocol.
fn form(live: &Live, shape: Protocol, entry: &Entry) -> ErrorForm {
    let asked = entry.record.model_asked.as_deref();
    let providers = asked
        .and_then(|asked| live.catalogue.resolve(shape, asked))
        .map_or(&[][..], |model| &model.providers);
    let preferred = providers.iter().find(|provider| provider.is_on()).or(providers.first());
    preferred.map_or(shape.into(), |provider| provider.error_form(shape))
}

/// Sends a complete answer of weir's own.
pub async fn write(session: &mut Session, reply: Reply, request_id: &str) -> Result<()> {
    let mut head = ResponseHeader::build(reply.status, Some(reply.headers.len() + 3))?;
    for (name, value) in reply.headers {
        head.insert_header(name, value)?;
    }
    head.insert_header(header::CONTENT_LENGTH, reply.body.len())?;
    head.insert_header(relay::REQUEST_ID, request_id)?;
    send(session, head, Bytes::from(reply.body)).await
}

/// Sends head and body. HEAD requests get the head only.
pub async fn send(session: &mut Session, head: ResponseHeader, body: Bytes) -> Result<()> {
    leave_body_unread(session);
    let bare = session.req_header().method == Method::HEAD || body.is_empty();
    if bare && session.req_header().version == Version::HTTP_2 {
        // Over HTTP/1.1 Pingora leaves the body out by itself.
        return session.write_response_header(Box::new(head), true).await;
    }
    session.write_response_header(Box::new(head), false).await?;
    session.write_response_body(Some(body), true).await
}

/// Prevents an unread body from being taken for the next request, and from being read without limit.
fn leave_body_unread(session: &mut Session) {
    if session.is_body_done() {
        return;
    }
    let small = content_length(&session.req_header().headers).is_some_and(|length| length <= DISCARD_BYTES_MAX);
    let waits = session.req_header().headers.contains_key(header::EXPECT);
    if small && !waits {
        session.set_total_drain_timeout(Some(DISCARD_WAIT));
    } else {
        session.set_keepalive(None);
    }
}

/// Ends a failed request. Before the answer's head the client gets a refusal; after it the protocol's in-band error,
/// or, if it has none, a broken connection. The end never looks like a success.
pub async fn fail(session: &mut Session, error: &Error, exchange: &mut Exchange) -> FailToProxy {
    let answered = has_begun(session);
    let code = match std::mem::replace(&mut exchange.stage, Stage::Answered) {
        Stage::Forwarding(mut forward) => {
            forward.ticket.because(error.etype().as_str());
            let code = if client_left(error) {
                forward.ticket.fail(Outcome::ClientGone);
                0
            } else if forward.is_unattended() {
                relay::note_client(&mut forward);
                0
            } else if answered {
                let (code, is_whole) = break_off(session, error, &mut forward).await;
                exchange.answered_whole = is_whole;
                code
            } else {
                let code = answer_failure(session, error, exchange.shape, &mut forward).await;
                exchange.answered_whole = code != 0;
                code
            };
            exchange.stage = Stage::Forwarding(forward);
            code
        }
        Stage::Arrived(mut entry) => {
            entry.cause = Some(error.etype().as_str());
            if client_left(error) || answered {
                entry.close(Outcome::ClientGone);
                0
            } else {
                // The failed hook may have left the connection in any state, such as a half-read body.
                session.set_keepalive(None);
                // A failed write does not change the record.
                let _ = refuse(session, &exchange.live, exchange.shape, *entry, &Refusal::Internal).await;
                500
            }
        }
        Stage::New | Stage::Answered if client_left(error) || answered => 0,
        Stage::New | Stage::Answered => {
            // The log record was lost with the failed hook; the client still gets an answer.
            session.set_keepalive(None);
            let request_id = exchange.request_id.to_string();
            let reply = Refusal::Internal.reply(exchange.shape, &request_id);
            match write(session, reply, &request_id).await {
                Ok(()) => Refusal::Internal.status(),
                Err(_) => 0,
            }
        }
    };
    FailToProxy {
        error_code: code,
        // Pingora uses this for some failures only; `keepalive` handles all of them.
        can_reuse_downstream: false,
    }
}

fn client_left(error: &Error) -> bool {
    *error.esource() == ErrorSource::Downstream && *error.etype() != ErrorType::InvalidHTTPHeader
}

async fn answer_failure(session: &mut Session, error: &Error, shape: Protocol, forward: &mut Forward) -> u16 {
    let refusal = forward.refusal.take().unwrap_or_else(|| refusal_of(error, forward));
    forward.ticket.fail(outcome_of(&refusal));
    forward.ticket.answered_with(refusal.status(), refusal.reason());
    forward.ticket.charge_now();
    let request_id = forward.ticket.request_id().to_owned();
    let reply = refusal.reply(forward.provider().error_form(shape), &request_id);
    match write(session, reply, &request_id).await {
        Ok(()) => refusal.status(),
        Err(_) => 0,
    }
}

/// Ends an answer that has begun. Returns the status for the log, and whether the client's answer ended properly.
async fn break_off(session: &mut Session, error: &Error, forward: &mut Forward) -> (u16, bool) {
    let panicked = *error.etype() == guard::PANICKED;
    if !panicked && let Some(rest) = relay::rest_of_whole(forward) {
        forward.ticket.charge_now();
        let ended = session.write_response_body(Some(rest), true).await;
        return (forward.ticket.meter.status(), ended.is_ok());
    }
    let (outcome, failure) = broken_off::failure_of(forward, panicked);
    forward.ticket.fail(outcome);
    forward.ticket.charge_now();
    let mut is_whole = false;
    if let Some(tail) = forward.ticket.meter.failure_tail(&failure) {
        // The rewriter's buffered part of an event goes first; the tail completes it.
        let mut held = forward
            .rewriter
            .take()
            .map(|mut rewriter| rewriter.finish())
            .unwrap_or_default();
        held.extend_from_slice(&tail);
        let tail = held;
        // If this fails the connection is broken, which tells the client the same.
        let ended = session.write_response_body(Some(Bytes::from(tail)), true).await;
        is_whole = ended.is_ok();
    }
    (502, is_whole)
}

fn refusal_of(error: &Error, forward: &Forward) -> Refusal {
    if forward.watch.as_ref().is_some_and(Watch::stopped) {
        return Refusal::Stopping;
    }
    if *error.etype() == guard::PANICKED || *error.esource() == ErrorSource::Internal {
        return Refusal::Internal;
    }
    if forward.watch.as_ref().is_some_and(Watch::expired) {
        return Refusal::ProviderTimeout;
    }
    match error.etype() {
        ErrorType::ReadTimedout | ErrorType::WriteTimedout => Refusal::ProviderTimeout,
        _ if forward.watch.is_none() && !forward.head_seen => Refusal::ProviderUnreachable,
        _ => Refusal::ProviderBroken,
    }
}

fn outcome_of(refusal: &Refusal) -> Outcome {
    match refusal {
        Refusal::ProviderTimeout => Outcome::ProviderTimeout,
        Refusal::ProviderUnreachable => Outcome::ProviderUnreachable,
        Refusal::ProviderCredentialRefused => Outcome::CredentialRefused,
        Refusal::ProviderRedirected { .. } => Outcome::ProviderError,
        Refusal::ProviderBroken => Outcome::ProviderCut,
        Refusal::Stopping => Outcome::Stopped,
        Refusal::Internal => Outcome::Internal,
        _ => Outcome::Refused,
    }
}
