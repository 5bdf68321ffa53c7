//! The answer to a request that the front refuses; over HTTP/1.1 it is the last one on its connection.

use std::time::Duration;

use http::StatusCode;
use pingora::{http::ResponseHeader, protocols::http::ServerSession};
use rand::RngExt;
use tokio::io::AsyncWriteExt;

use crate::{
    domain::{
        faults::refusal::Refusal,
        wire::{http1::head::HeadFault, operation},
    },
    front::guarded::ClientConnection,
    telemetry::metrics::CloseReason,
};

/// How long the client may go on sending after its answer. Closing a connection with unread bytes resets it, and the answer may
/// be lost.
const LINGER: Duration = Duration::from_secs(1);

/// Tells the client why its connection is closed, if there is an HTTP/1.1 answer for `reason`, in the form of the requested
/// path's protocol.
pub(super) async fn send_refusal(connection: &mut ClientConnection, reason: CloseReason) {
    let refusal = match reason {
        CloseReason::Head(HeadFault::TooLarge) => Refusal::HeadersTooLarge,
        CloseReason::Head(fault) => Refusal::HeadInvalid(fault),
        CloseReason::HeadLate => Refusal::HeadTimeout,
        CloseReason::HeadBudgetExhausted => Refusal::HeadGaveWay,
        CloseReason::ChunksInvalid => Refusal::BodyFramingInvalid,
        _ => return,
    };
    let form = operation::error_protocol(requested_path(connection.ahead()));
    connection.forget_ahead();
    let reply = refusal.reply(form, &request_id());
    let phrase = StatusCode::from_u16(reply.status)
        .ok()
        .and_then(|status| status.canonical_reason());
    let mut answer = format!("HTTP/1.1 {} {}\r\n", reply.status, phrase.unwrap_or_default());
    for (name, value) in &reply.headers {
        answer.push_str(&format!("{name}: {value}\r\n"));
    }
    answer.push_str(&format!(
        "content-length: {}\r\nconnection: close\r\n\r\n",
        reply.body.len()
    ));
    let answer = [answer.as_bytes(), &reply.body].concat();
    // An error means that the client does not read its answer.
    let _ = tokio::time::timeout(LINGER, async {
        connection.write_all(&answer).await?;
        connection.flush().await?;
        AsyncWriteExt::shutdown(connection).await?;
        while connection.read_ahead().await? > 0 {
            connection.skip_ahead(usize::MAX);
        }
        std::io::Result::Ok(())
    })
    .await;
}

/// Answers a request over HTTP/2 with `refusal`, in the form of its path's protocol, and leaves its body unread.
pub(super) async fn refuse_http2(mut session: ServerSession, refusal: &Refusal) {
    let form = operation::error_protocol(session.req_header().uri.path());
    let reply = refusal.reply(form, &request_id());
    let Ok(mut head) = ResponseHeader::build(reply.status, Some(reply.headers.len() + 1)) else {
        return;
    };
    let length = ("content-length", reply.body.len().to_string());
    for (name, value) in reply.headers.into_iter().chain([length]) {
        if head.insert_header(name, value).is_err() {
            return;
        }
    }
    // An error means that the client does not read its answer.
    let _ = tokio::time::timeout(LINGER, async move {
        session.write_response_header(Box::new(head)).await?;
        session.write_response_body(reply.body.into(), true).await?;
        session.finish().await
    })
    .await;
}

/// The path in a request line, which may be malformed; empty if there is none.
fn requested_path(bytes: &[u8]) -> &str {
    let mut words = bytes.split(|byte| b" \r\n".contains(byte));
    let target = words.nth(1).unwrap_or_default();
    let path = target.split(|byte| b"?#".contains(byte)).next().unwrap_or_default();
    std::str::from_utf8(path).unwrap_or_default()
}

/// A new request id, in the form of `gateway/exchange.rs`.
fn request_id() -> String {
    let random = rand::rng()
        .sample_iter(rand::distr::Alphanumeric)
        .take(24)
        .map(char::from);
    format!("req_{}", random.collect::<String>())
}
