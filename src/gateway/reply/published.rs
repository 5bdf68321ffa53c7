//! Serves the public stability service on the gateway's port, without a key and without reading a body.

use http::header;
use pingora::{Result, http::ResponseHeader};
use pingora_proxy::Session;

use crate::{
    edges::clock,
    gateway::{exchange::Exchange, peer, reply},
    stability::public::{Public, PublicRequest, PublicResponse},
    store::time::StoreTime,
};

/// The service's answer, if the path is one of its own.
pub(crate) fn find(public: &Public, time: &StoreTime, session: &Session) -> Option<PublicResponse> {
    let now = clock::instant();
    let head = session.req_header();
    public.answer(&PublicRequest {
        method: &head.method,
        path: head.uri.path(),
        query: head.uri.query(),
        headers: &head.headers,
        peer: peer::address(session),
        now_ms: time.now_ms(now),
        now,
    })
}

/// Sends the answer and closes the line in the access log, which has no protocol.
pub(crate) async fn send(
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
    let sent = write(session, answer, &exchange.request_id).await;
    exchange.log.close(&reply::end_of_reply(&sent));
}

async fn write(session: &mut Session, answer: PublicResponse, request_id: &str) -> Result<()> {
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
