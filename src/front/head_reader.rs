//! Waits for a client's next request, reads the request's head within limits of time and size, and answers requests that it
//! refuses.

#[cfg(test)]
mod tests;

use std::{
    future::poll_fn,
    io::ErrorKind,
    pin::{Pin, pin},
    task::Poll,
    time::Duration,
};

use bytes::BytesMut;
use http::StatusCode;
use pingora::{http::ResponseHeader, protocols::http::ServerSession, server::ShutdownWatch};
use rand::RngExt;
use tokio::{io::AsyncWriteExt, time::Sleep};

use crate::{
    domain::{
        faults::refusal::Refusal,
        wire::{
            http1::head::{self, HeadEnd, HeadFault, HeadLimits},
            operation,
        },
    },
    front::connection::ClientConnection,
    telemetry::metrics::CloseReason,
};

/// The preface with which an HTTP/2 connection begins (RFC 9113 section 3.4).
const H2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The protocol with which a client is allowed to begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExpectedProtocol {
    /// An HTTP/1.1 request or the HTTP/2 preface. The first bytes decide.
    Either,
    /// An HTTP/1.1 request.
    Http1,
    /// The HTTP/2 preface, because the TLS handshake has agreed on HTTP/2.
    Http2,
}

/// The limits on the arrival of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ArrivalLimits {
    /// The maximum time without a byte before the request begins.
    pub silence: Duration,
    /// The maximum time from the first byte to the end of the head.
    pub head: Duration,
    /// The maximum size of the head.
    pub size: HeadLimits,
}

/// The conditions under which the wait for a request ends because the process shuts down.
#[derive(Clone, Debug)]
pub(crate) struct Closing {
    /// Becomes true when the shutdown begins.
    pub shutdown: ShutdownWatch,
    /// The time after the beginning of the shutdown during which the client can still send its request.
    pub patience: Duration,
}

impl Closing {
    /// Waits until the shutdown has begun and `patience` has passed.
    pub(crate) async fn expired(mut self) {
        // An error means that the sender no longer exists, because the process ends as well.
        let _ = self.shutdown.wait_for(|closing| *closing).await;
        tokio::time::sleep(self.patience).await;
    }
}

/// The result of the wait for a request on a connection.
#[derive(Debug)]
pub(crate) enum Arrival {
    /// A request's checked head, followed by the part of the body that arrived with it.
    Request(BytesMut),
    /// The HTTP/2 preface, not consumed yet.
    Http2,
    /// No request: the client has disconnected, or the process shuts down.
    Nothing,
}

/// Waits for the trailers of the previous request and then for the next request. An error is the reason to close the connection;
/// the bytes received so far stay readable. `timer` and `over` (see [`Closing::expired`]) belong to the connection. If a request
/// arrives in time, both can be used again for the next request.
pub(crate) async fn next_request(
    connection: &mut ClientConnection,
    spoken: ExpectedProtocol,
    limits: ArrivalLimits,
    timer: Pin<&mut Sleep>,
    over: Pin<&mut impl Future<Output = ()>>,
) -> Result<Arrival, CloseReason> {
    tokio::select! {
        biased;
        arrived = arrive(connection, spoken, limits, timer) => arrived,
        () = over => Ok(Arrival::Nothing),
    }
}

async fn arrive(
    connection: &mut ClientConnection,
    spoken: ExpectedProtocol,
    limits: ArrivalLimits,
    mut timer: Pin<&mut Sleep>,
) -> Result<Arrival, CloseReason> {
    if !connection.finish_request().await {
        return Ok(Arrival::Nothing);
    }
    if connection.ahead().is_empty() {
        match within(timer.as_mut(), limits.silence, connection.read_head()).await {
            None => return Err(CloseReason::Silent),
            Some(Err(_) | Ok(0)) => return Ok(Arrival::Nothing),
            Some(Ok(_)) => {}
        }
    }
    let whole = within(timer, limits.head, read_whole_head(connection, spoken, limits.size)).await;
    whole.unwrap_or(Err(CloseReason::HeadLate))
}

/// Returns the result of `reading`; `None` if it takes longer than `wait`. The timer is set only if `reading` is not ready at
/// once. Setting a running timer to a later time is cheap.
async fn within<T>(mut timer: Pin<&mut Sleep>, wait: Duration, reading: impl Future<Output = T>) -> Option<T> {
    let mut reading = pin!(reading);
    let mut is_set = false;
    poll_fn(|cx| {
        if let Poll::Ready(done) = reading.as_mut().poll(cx) {
            return Poll::Ready(Some(done));
        }
        if !is_set {
            is_set = true;
            timer.as_mut().reset(tokio::time::sleep(wait).deadline());
        }
        timer.as_mut().poll(cx).map(|()| None)
    })
    .await
}

async fn read_whole_head(
    connection: &mut ClientConnection,
    spoken: ExpectedProtocol,
    limits: HeadLimits,
) -> Result<Arrival, CloseReason> {
    let mut end = HeadEnd::default();
    let mut may_skip_line = true;
    loop {
        let ahead = connection.ahead();
        // RFC 9112 section 2.2: one empty line may precede a request.
        if may_skip_line && ahead.starts_with(b"\r\n") {
            connection.skip_ahead(2);
            may_skip_line = false;
            continue;
        }
        let is_preface = spoken != ExpectedProtocol::Http1 && H2_PREFACE.starts_with(prefix(ahead));
        if is_preface && ahead.len() >= H2_PREFACE.len() {
            connection.begin_http2();
            return Ok(Arrival::Http2);
        }
        let undecided = is_preface || ahead.is_empty() || may_skip_line && ahead == b"\r";
        if !undecided {
            if spoken == ExpectedProtocol::Http2 {
                return Err(CloseReason::Handshake);
            }
            if let Some(length) = end.find(ahead, limits).map_err(CloseReason::Head)? {
                let head = ahead.get(..length).unwrap_or_default();
                let framing = head::check(head, limits).map_err(CloseReason::Head)?;
                let request = connection.begin_request(length, framing);
                return request.map(Arrival::Request).map_err(|_| CloseReason::ChunksInvalid);
            }
        }
        match connection.read_head().await {
            Ok(1..) => {}
            Err(error) if error.kind() == ErrorKind::OutOfMemory => return Err(CloseReason::HeadBudgetExhausted),
            _ => return Ok(Arrival::Nothing),
        }
    }
}

/// Returns the beginning of `bytes`, at most as many bytes as the HTTP/2 preface has.
fn prefix(bytes: &[u8]) -> &[u8] {
    bytes.get(..H2_PREFACE.len()).unwrap_or(bytes)
}

/// The maximum time for sending the answer and for reading what the client still sends. If weir closed the connection at once,
/// the client's unread bytes would cause a reset of the connection, and the client might lose the answer.
const LINGER: Duration = Duration::from_secs(1);

/// Sends the refusal that corresponds to `reason` to an HTTP/1.1 client before its connection is closed. The protocol of the
/// requested path determines the form of the refusal. Sends nothing if no refusal corresponds to `reason`.
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

/// Answers an HTTP/2 request with `refusal`, in the form of its path's protocol, and leaves the request's body unread.
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

/// Returns the path in a request line, which may be malformed; empty if the line contains no path.
fn requested_path(bytes: &[u8]) -> &str {
    let mut words = bytes.split(|byte| b" \r\n".contains(byte));
    let target = words.nth(1).unwrap_or_default();
    let path = target.split(|byte| b"?#".contains(byte)).next().unwrap_or_default();
    std::str::from_utf8(path).unwrap_or_default()
}

/// Creates a request id of the same form as in `gateway/exchange.rs`.
fn request_id() -> String {
    let random = rand::rng()
        .sample_iter(rand::distr::Alphanumeric)
        .take(24)
        .map(char::from);
    format!("req_{}", random.collect::<String>())
}
