//! Serves an HTTP/1.1 connection to a listener beside the gateway's, with timeouts for the client. A connection without a request
//! may be replaced by a new one.

use std::{
    convert::Infallible,
    future::Future,
    io,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use axum::{Router, body::Body};
use bytes::Bytes;
use http::Request;
use hyper::{
    body::{Body as HttpBody, Frame, Incoming, SizeHint},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::Sleep,
};
use tower_service::Service;

use crate::edges::connection_slots::ConnectionSlot;

/// The maximum number of header lines of a request.
const HEADERS_MAX: usize = 64;
/// The maximum size of a request's head and of the read buffer, in bytes.
const HEAD_BYTES_MAX: usize = 16 * 1024;

/// The timeouts for a client.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClientWaits {
    /// The timeout for a request's head, which also limits how long a connection can be idle.
    pub head: Duration,
    /// The timeout for the client to receive an answer.
    pub answer: Duration,
}

/// Serves a connection until it ends or is replaced. Once `closing` is ready, the connection accepts no further request. Errors
/// of the connection are ignored, because the client notices them.
pub(super) async fn serve<S>(
    stream: S,
    slot: ConnectionSlot,
    router: Router,
    waits: ClientWaits,
    closing: impl Future<Output = ()>,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let slot = Arc::new(slot);
    let answering = Arc::clone(&slot);
    let service = service_fn(move |request: Request<Incoming>| {
        let (mut router, slot) = (router.clone(), Arc::clone(&answering));
        async move {
            let request = request.map(|body| report_end(body, &slot, ConnectionSlot::on_request));
            // The result of `poll_ready` need not be awaited, because an axum router is always ready.
            let response = Service::call(&mut router, request).await?;
            Ok::<_, Infallible>(response.map(|body| report_end(body, &slot, ConnectionSlot::on_answered)))
        }
    });
    let stream = WriteLimit::new(stream, waits.answer, Arc::clone(&slot));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(waits.head)
        .max_headers(HEADERS_MAX)
        .max_buf_size(HEAD_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), service);
    let serving = async {
        let mut connection = pin!(connection);
        tokio::select! {
            _ = connection.as_mut() => return,
            () = closing => connection.as_mut().graceful_shutdown(),
        }
        let _ended = connection.await;
    };
    tokio::select! {
        () = serving => {}
        () = slot.given_way() => {}
    }
}

/// A body that notifies its connection's slot when the body ends or is dropped.
struct ReportingBody<B> {
    body: B,
    slot: Arc<ConnectionSlot>,
    end: fn(&ConnectionSlot),
}

fn report_end<B>(body: B, slot: &Arc<ConnectionSlot>, end: fn(&ConnectionSlot)) -> Body
where
    B: HttpBody<Data = Bytes, Error: Into<axum::BoxError>> + Send + Unpin + 'static,
{
    let slot = Arc::clone(slot);
    Body::new(ReportingBody { body, slot, end })
}

impl<B: HttpBody + Unpin> HttpBody for ReportingBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl<B> Drop for ReportingBody<B> {
    fn drop(&mut self) {
        (self.end)(&self.slot);
    }
}

/// A stream with a timeout for writing. The time runs from the first write that has to wait until a flush completes. A peer that
/// reads a few bytes now and then does not restart it.
#[derive(Debug)]
struct WriteLimit<S> {
    stream: S,
    limit: Duration,
    waiting: Option<Pin<Box<Sleep>>>,
    /// The connection's slot. It is notified when a write has to wait for the peer, and when all has been written.
    slot: Arc<ConnectionSlot>,
}

impl<S> WriteLimit<S> {
    fn new(stream: S, limit: Duration, slot: Arc<ConnectionSlot>) -> Self {
        Self {
            stream,
            limit,
            waiting: None,
            slot,
        }
    }

    /// Called when a write has to wait. Returns an error once the timeout has passed.
    fn poll_timeout<T>(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
        if self.waiting.is_none() {
            self.slot.set_untaken(true);
        }
        let limit = self.limit;
        let waiting = self.waiting.get_or_insert_with(|| Box::pin(tokio::time::sleep(limit)));
        ready!(waiting.as_mut().poll(cx));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for WriteLimit<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, into)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for WriteLimit<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match Pin::new(&mut self.stream).poll_write(cx, bytes) {
            Poll::Pending => self.poll_timeout(cx),
            written @ Poll::Ready(_) => written,
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match Pin::new(&mut self.stream).poll_flush(cx) {
            Poll::Pending => self.poll_timeout(cx),
            flushed @ Poll::Ready(_) => {
                if self.waiting.take().is_some() {
                    self.slot.set_untaken(false);
                }
                flushed
            }
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match Pin::new(&mut self.stream).poll_shutdown(cx) {
            Poll::Pending => self.poll_timeout(cx),
            ended @ Poll::Ready(_) => ended,
        }
    }
}
