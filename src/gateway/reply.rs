//! Sends weir's own answers.

pub(crate) mod agent_settings;
pub(crate) mod greeting;
pub(crate) mod listing;
pub(crate) mod own_usage;
pub(crate) mod portal;
pub(crate) mod published;

use std::time::Duration;

use bytes::Bytes;
use http::{Method, Version, header};
use pingora::{Result, http::ResponseHeader};
use pingora_proxy::Session;

use crate::{
    domain::{
        faults::{
            end::End,
            refusal::{Refusal, RefusalReply},
        },
        wire::protocol::ErrorForm,
    },
    gateway::{exchange::Exchange, request::head::content_length},
};

/// The header with weir's request id; a provider's own id keeps its header.
pub(crate) const REQUEST_ID: &str = "x-weir-request-id";

/// The size up to which an unread body is read and discarded, so that the connection stays usable.
const DISCARD_BYTES_MAX: u64 = 64 * 1024;

/// How long discarding may take.
const DISCARD_WAIT: Duration = Duration::from_secs(1);

/// Whether the final head of the answer has been sent. An interim one (RFC 9110 section 15.2), such as `100 Continue`,
/// does not count.
pub(crate) fn has_begun(session: &Session) -> bool {
    session
        .response_written()
        .is_some_and(|head| !head.status.is_informational())
}

/// Answers with a refusal and closes the line in the access log.
pub(crate) async fn refuse(session: &mut Session, exchange: &mut Exchange, refusal: Refusal) -> Result<()> {
    let reply = refusal.reply(form(exchange), &exchange.request_id);
    exchange.log.record.response_bytes = reply.body.len() as u64;
    if matches!(refusal, Refusal::BodyTimeout) {
        // The rest of the body will not arrive either.
        session.set_keepalive(None);
    }
    exchange.log.close(&End::Refused(refusal));
    write(session, reply, &exchange.request_id).await
}

/// Sends an answer of weir that is not a refusal, and closes the line in the access log.
pub(crate) async fn send_reply(session: &mut Session, exchange: &mut Exchange, mut reply: RefusalReply) {
    exchange.log.record.status = reply.status;
    let id_header = exchange.protocol.request_id_header();
    reply.headers.push((id_header, exchange.request_id.to_string()));
    let sent = write(session, reply, &exchange.request_id).await;
    exchange.log.close(&end_of_reply(&sent));
}

/// The end of a request that weir has answered itself.
pub(crate) fn end_of_reply(sent: &Result<()>) -> End {
    match sent {
        Ok(()) => End::Complete,
        Err(_) => End::ClientLeft,
    }
}

/// The error form of a refusal: that of the requested model's provider if the model is known, or else that of the protocol.
fn form(exchange: &Exchange) -> ErrorForm {
    let protocol = exchange.protocol;
    let asked = exchange.log.record.model_asked.as_deref();
    let providers = asked
        .and_then(|asked| exchange.live.catalogue.resolve(protocol, asked))
        .map_or(&[][..], |model| &model.providers);
    let preferred = providers.iter().find(|provider| provider.is_on()).or(providers.first());
    preferred.map_or(protocol.into(), |provider| provider.error_form(protocol))
}

/// Sends a complete answer of weir.
pub(crate) async fn write(session: &mut Session, reply: RefusalReply, request_id: &str) -> Result<()> {
    let mut head = ResponseHeader::build(reply.status, Some(reply.headers.len() + 3))?;
    for (name, value) in reply.headers {
        head.insert_header(name, value)?;
    }
    // In a 304 it would be the length of the body that the client has cached (RFC 9110 section 8.6).
    if reply.status != 304 {
        head.insert_header(header::CONTENT_LENGTH, reply.body.len())?;
    }
    head.insert_header(REQUEST_ID, request_id)?;
    send(session, head, Bytes::from(reply.body)).await
}

/// Sends head and body. HEAD requests get the head only.
pub(crate) async fn send(session: &mut Session, head: ResponseHeader, body: Bytes) -> Result<()> {
    leave_body_unread(session);
    let bare = session.req_header().method == Method::HEAD || body.is_empty();
    if bare && session.req_header().version == Version::HTTP_2 {
        // Over HTTP/1.1 Pingora leaves the body out by itself.
        return session.write_response_header(Box::new(head), true).await;
    }
    session.write_response_header(Box::new(head), false).await?;
    session.write_response_body(Some(body), true).await
}

/// Has a small unread body read and discarded. With any other the connection is closed, so that the body is not taken for the
/// next request.
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
