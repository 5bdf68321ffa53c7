//! Serves the public stability service on the gateway's port, without a key and without reading a body.

use http::header;
use pingora::{Result, http::ResponseHeader};
use pingora_proxy::Session;

use crate::{
    edges::clock,
    gateway::{exchange::Exchange, peer, reply},
    stability::public::{PublicRequest, PublicResponse, PublicService},
    store::time::StoreTime,
};

/// The answer of the public stability service, if the path belongs to it. Needs no key and reads no body.
pub(crate) fn find_published(public: &PublicService, time: &StoreTime, session: &Session) -> Option<PublicResponse> {
    let now = clock::instant();
    let head = session.req_header();
    public.answer(&PublicRequest {
        method: &head.method,
        path: head.uri.path(),
        query: head.uri.query(),
        headers: &head.headers,
        peer: peer::peer_address(session),
        now_ms: time.now_ms(now),
        now,
    })
}

/// Sends an answer of the stability service or the portal, and closes the line in the access log, which has no protocol.
pub(crate) async fn send_published(
    session: &mut Session,
    exchange: &mut Exchange,
    operation: &'static str,
    answer: PublicResponse,
) {
    let record = &mut exchange.log.record;
    record.protocol = None;
    record.operation = Some(operation);
    record.status = answer.status.as_u16();
    record.response_bytes = answer.body.len() as u64;
    let sent = write_published(session, answer, &exchange.request_id).await;
    exchange.log.close(&reply::end_of_reply(&sent));
}

async fn write_published(session: &mut Session, answer: PublicResponse, request_id: &str) -> Result<()> {
    let mut head = ResponseHeader::build(answer.status, Some(answer.headers.len() + 2))?;
    for (name, value) in &answer.headers {
        head.append_header(name, value)?;
    }
    if answer.has_body() {
        head.insert_header(header::CONTENT_LENGTH, answer.body.len())?;
    }
    head.insert_header(reply::REQUEST_ID, request_id)?;
    reply::send(session, head, answer.body).await
}
