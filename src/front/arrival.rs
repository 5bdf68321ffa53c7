//! Waits for a client's next request, and reads its head within limits of time and size.

use std::{
    future::poll_fn,
    io::ErrorKind,
    pin::{Pin, pin},
    task::Poll,
    time::Duration,
};

use bytes::BytesMut;
use pingora::server::ShutdownWatch;
use tokio::time::Sleep;

use crate::{
    domain::wire::http1::head::{self, HeadEnd, HeadLimits},
    front::guarded::Guarded,
    telemetry::metrics::CloseReason,
};

/// How an HTTP/2 connection begins (RFC 9113 section 3.4).
const H2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// What a client may begin with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spoken {
    /// A request of HTTP/1.1 or the preface of HTTP/2: the first bytes decide.
    Either,
    /// A request of HTTP/1.1.
    Http1,
    /// The preface of HTTP/2, as agreed on by TLS.
    Http2,
}

/// The limits of what is waited for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ArrivalLimits {
    /// The longest silence before the first byte.
    pub silence: Duration,
    /// The longest time from the first byte to the end of the head.
    pub head: Duration,
    /// How large the head may be.
    pub size: HeadLimits,
}

/// When a connection is not waited for any more because weir takes nothing new.
#[derive(Clone, Debug)]
pub(crate) struct Closing {
    /// Turns true when weir takes nothing new.
    pub told: ShutdownWatch,
    /// How much longer the client may take.
    pub patience: Duration,
}

impl Closing {
    /// Returns when the client's time is over.
    pub(crate) async fn over(mut self) {
        // Whoever could say so is gone: that means the same.
        let _ = self.told.wait_for(|closing| *closing).await;
        tokio::time::sleep(self.patience).await;
    }
}

/// What has come.
#[derive(Debug)]
pub(crate) enum Arrival {
    /// A request's head, checked, and what came of the body with it.
    Request(BytesMut),
    /// The preface of HTTP/2; it is to be read yet.
    Http2,
    /// The client has left, or weir takes nothing new.
    Nothing,
}

/// Waits for a request, and before that for the trailers of the one before. An error says what the client has done wrong; what it
/// has sent so far can still be seen. `timer` and `over`, which is [`Closing::over`], are the connection's: a request that
/// comes in time leaves them as they are for the next one.
pub(crate) async fn next(
    connection: &mut Guarded,
    spoken: Spoken,
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
    connection: &mut Guarded,
    spoken: Spoken,
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
    let whole = within(timer, limits.head, whole_head(connection, spoken, limits.size)).await;
    whole.unwrap_or(Err(CloseReason::HeadLate))
}

/// The result of `reading`; `None` if it takes longer than `wait`. What is there needs no timer, and one that is put off costs
/// little while it is still set for an earlier time.
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

async fn whole_head(connection: &mut Guarded, spoken: Spoken, limits: HeadLimits) -> Result<Arrival, CloseReason> {
    let mut end = HeadEnd::default();
    let mut may_skip_line = true;
    loop {
        let ahead = connection.ahead();
        // RFC 9112 section 2.2: one empty line may stand before a request.
        if may_skip_line && ahead.starts_with(b"\r\n") {
            connection.skip_ahead(2);
            may_skip_line = false;
            continue;
        }
        let is_preface = spoken != Spoken::Http1 && H2_PREFACE.starts_with(prefix(ahead));
        if is_preface && ahead.len() >= H2_PREFACE.len() {
            connection.begin_http2();
            return Ok(Arrival::Http2);
        }
        let undecided = is_preface || ahead.is_empty() || may_skip_line && ahead == b"\r";
        if !undecided {
            if spoken == Spoken::Http2 {
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
            Err(error) if error.kind() == ErrorKind::OutOfMemory => return Err(CloseReason::HeadGaveWay),
            _ => return Ok(Arrival::Nothing),
        }
    }
}

/// As much of the beginning as the preface has.
fn prefix(bytes: &[u8]) -> &[u8] {
    bytes.get(..H2_PREFACE.len()).unwrap_or(bytes)
}

#[cfg(test)]
mod tests;
