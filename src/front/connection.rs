//! A client's connection between the socket and Pingora's parsers.
//!
//! Pingora gets no bytes after the end of the current request. The connection stores such bytes until the request is answered,
//! because they are the beginning of the next request's head. The front also closes the connection of a client that does not read
//! its answer.

#[cfg(test)]
mod tests;

use std::{
    future::poll_fn,
    io::{self, ErrorKind, IoSlice},
    mem::MaybeUninit,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use async_trait::async_trait;
use bytes::{Buf, BytesMut};
use pingora::protocols::{
    ALPN, GetProxyDigest, GetSocketDigest, GetTimingDigest, Peek, Shutdown, SocketDigest, Ssl, Stream, TimingDigest,
    UniqueID, UniqueIDType,
    raw_connect::ProxyDigest,
    tls::{SslDigest, TlsRef},
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::Sleep,
};

use crate::{
    domain::{
        faults::PeerPace,
        wire::{
            http1::{ChunkFault, head::RequestFraming},
            http2::Http2HeadTracker,
        },
    },
    edges::{clock, connection_slots::ConnectionSlot},
    front::{
        ClientTimes,
        head_budget::{HeadBudgetExhausted, HeadLease},
        permits::ConnectionPermit,
        unread::{BodyTimer, ReadAllowance, put_end},
    },
    telemetry::metrics::{CloseReason, GaugeGuard, ListenerFigures},
};

/// The maximum number of bytes that one read stores for later.
const READ_BYTES: usize = 4096;

/// The maximum number of bytes of one read of a WebSocket.
const SOCKET_READ_BYTES: usize = 16 * 1024;

/// The maximum number of bytes that are stored for later while an answer runs. Further bytes stay in the kernel.
const AHEAD_BYTES_MAX: usize = 16 * 1024;

/// A client's connection, with its permit.
#[derive(Debug)]
pub(crate) struct ClientConnection {
    stream: Stream,
    ahead: BytesMut,
    unread: ReadAllowance,
    body_timer: BodyTimer,
    write_pace: PeerPace,
    /// The time limit of a write; `Some` while the client does not read the written bytes.
    late: Option<Pin<Box<Sleep>>>,
    /// Counts the bytes of an unfinished head in the heads' budget. Over HTTP/1.1, these are the bytes in `ahead`; over HTTP/2,
    /// the head's bytes in the frames.
    head: HeadLease,
    figures: ListenerFigures,
    _open: GaugeGuard,
    permit: Option<ConnectionPermit>,
}

impl ClientConnection {
    /// Wraps `stream`. The connection gives its permit back when the socket is closed.
    pub(crate) fn new(
        stream: Stream,
        (permit, head): (Option<ConnectionPermit>, HeadLease),
        times: ClientTimes,
        figures: ListenerFigures,
    ) -> Self {
        Self {
            stream,
            ahead: BytesMut::new(),
            unread: ReadAllowance::Nothing,
            body_timer: BodyTimer::new(times.body),
            write_pace: PeerPace::new(times.answer),
            late: None,
            head,
            _open: figures.on_open(),
            figures,
            permit,
        }
    }

    pub(crate) fn figures(&self) -> &ListenerFigures {
        &self.figures
    }

    /// The slot whose connection may have to give way to a new one; `None` if this connection never gives way.
    pub(crate) fn slot(&self) -> Option<&Arc<ConnectionSlot>> {
        self.permit.as_ref()?.slot()
    }

    /// The bytes that have arrived and have not been passed on.
    pub(crate) fn ahead(&self) -> &[u8] {
        &self.ahead
    }

    /// Reads more bytes and stores them for later. Returns their number, 0 at the end of the connection. Cancel-safe.
    pub(crate) async fn read_ahead(&mut self) -> io::Result<usize> {
        poll_fn(|cx| self.poll_ahead(cx)).await
    }

    /// Reads more bytes of a head and stores them. Returns their number, 0 at the end of the connection. Cancel-safe. An error of
    /// the kind `OutOfMemory` means that the head has to give way to other heads.
    pub(crate) async fn read_head(&mut self) -> io::Result<usize> {
        poll_fn(|cx| {
            if self.head.poll_gave_way(cx).is_ready() {
                return Poll::Ready(Err(gave_way(HeadBudgetExhausted)));
            }
            let count = ready!(self.poll_ahead(cx))?;
            self.head.set_size(self.ahead.len()).map_err(gave_way)?;
            Poll::Ready(Ok(count))
        })
        .await
    }

    /// Reads more bytes and stores them for later. Allocates memory only after bytes have arrived, because idle connections wait
    /// here.
    fn poll_ahead(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let mut space = [MaybeUninit::uninit(); READ_BYTES];
        let mut come = ReadBuf::uninit(&mut space);
        ready!(Pin::new(&mut self.stream).poll_read(cx, &mut come))?;
        self.ahead.extend_from_slice(come.filled());
        Poll::Ready(Ok(come.filled().len()))
    }

    /// Discards the first `count` stored bytes.
    pub(crate) fn skip_ahead(&mut self, count: usize) {
        self.ahead.advance(count.min(self.ahead.len()));
    }

    /// Discards all stored bytes and frees their memory.
    pub(crate) fn forget_ahead(&mut self) {
        self.ahead = BytesMut::new();
        self.head.release();
    }

    /// Begins a request whose head of `length` bytes has arrived. Returns the head, followed by the part of the body that arrived
    /// with it. The rest of the body can be read afterwards.
    pub(crate) fn begin_request(&mut self, length: usize, framing: RequestFraming) -> io::Result<BytesMut> {
        self.head.release();
        self.unread = framing.into();
        self.body_timer.restart();
        self.write_pace.restart();
        let length = length.min(self.ahead.len());
        let body = self.unread.consume(self.ahead.get(length..).unwrap_or_default());
        let body = body.map_err(|fault| record_malformed_body(fault, &self.figures))?;
        let mut request = self.ahead.split_to(length + body);
        request.extend_from_slice(self.unread.take_end(usize::MAX));
        self.skip_trailers()?;
        self.mark_busy_if_read();
        Ok(request)
    }

    /// Marks the connection as busy if the current request has been read to its end.
    fn mark_busy_if_read(&self) {
        if let Some(slot) = self.slot().filter(|_| self.unread.is_body_read()) {
            slot.on_request();
        }
    }

    /// Passes on all bytes from now on, because the connection uses HTTP/2.
    pub(crate) fn begin_http2(&mut self) {
        self.head.release();
        self.unread = ReadAllowance::Everything(Http2HeadTracker::default());
    }

    /// Begins a WebSocket. Returns the bytes that have arrived after the handshake. Later bytes are read with
    /// [`Self::poll_socket`].
    pub(crate) fn begin_socket(&mut self) -> BytesMut {
        self.head.release();
        self.write_pace.restart();
        std::mem::take(&mut self.ahead)
    }

    /// Appends bytes of a WebSocket to `into`. Returns their number, 0 at the end of the connection. Allocates memory only after
    /// bytes have arrived, because idle sockets wait here.
    pub(crate) fn poll_socket(&mut self, cx: &mut Context<'_>, into: &mut BytesMut) -> Poll<io::Result<usize>> {
        let mut space = [MaybeUninit::uninit(); SOCKET_READ_BYTES];
        let mut come = ReadBuf::uninit(&mut space);
        ready!(Pin::new(&mut self.stream).poll_read(cx, &mut come))?;
        into.extend_from_slice(come.filled());
        Poll::Ready(Ok(come.filled().len()))
    }

    /// Counts the bytes of an unfinished HTTP/2 head in the heads' budget.
    fn count_http2_head(&mut self) -> io::Result<()> {
        let Some(unfinished) = self.unread.unfinished_head() else {
            return Ok(());
        };
        self.head.set_http2_size(unfinished).map_err(|gone| {
            self.figures.record_close(CloseReason::HeadBudgetExhausted);
            gave_way(gone)
        })
    }

    /// Waits for the trailers of the request, if it has any. Returns false if no other request can follow, because this one was
    /// not read to its end or its trailers are malformed, late or cut off.
    pub(crate) async fn finish_request(&mut self) -> bool {
        self.unread.is_body_read() && matches!(poll_fn(|cx| self.poll_trailers(cx)).await, Ok(true))
    }

    /// Waits for the end of the request, including its trailers. Returns false if the client closes its sending side before the
    /// end.
    fn poll_trailers(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<bool>> {
        loop {
            self.skip_trailers()?;
            if !self.unread.has_more() {
                return Poll::Ready(Ok(true));
            }
            match self.poll_ahead(cx)? {
                Poll::Ready(0) => return Poll::Ready(Ok(false)),
                Poll::Ready(count) => self.body_timer.on_bytes(count),
                Poll::Pending => return self.body_timer.poll_late(cx).map_ok(|()| false),
            }
        }
    }

    /// Discards the trailers that have arrived, because trailers are not forwarded.
    fn skip_trailers(&mut self) -> io::Result<()> {
        let count = self.unread.consume_trailers(&self.ahead);
        self.ahead
            .advance(count.map_err(|fault| record_malformed_body(fault, &self.figures))?);
        Ok(())
    }

    /// Stores bytes that arrive after the request. Becomes ready when the client closes its sending side.
    fn poll_behind(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !ready!(self.poll_trailers(cx))? {
            return Poll::Ready(Ok(()));
        }
        while self.ahead.len() < AHEAD_BYTES_MAX {
            if ready!(self.poll_ahead(cx))? == 0 {
                return Poll::Ready(Ok(()));
            }
        }
        Poll::Pending
    }

    fn set_write_stalled(&self, untaken: bool) {
        if let Some(slot) = self.slot() {
            slot.set_untaken(untaken);
        }
    }

    /// Handles the result of a write. Returns an error if the client has read nothing for too long.
    fn on_write<T>(&mut self, cx: &mut Context<'_>, result: Poll<io::Result<T>>, bytes: usize) -> Poll<io::Result<T>> {
        if result.is_ready() {
            self.write_pace.on_moved(bytes, clock::instant);
            if self.late.take().is_some() {
                self.set_write_stalled(false);
            }
            return result;
        }
        if self.late.is_none() {
            self.set_write_stalled(true);
        }
        let late = match &mut self.late {
            Some(late) => late,
            None => {
                let due = self.write_pace.begin_wait(clock::instant());
                self.late.insert(Box::pin(tokio::time::sleep_until(due.into())))
            }
        };
        ready!(late.as_mut().poll(cx));
        self.late = None;
        self.figures.record_close(CloseReason::AnswerUntaken);
        Poll::Ready(Err(ErrorKind::TimedOut.into()))
    }
}

fn gave_way(_: HeadBudgetExhausted) -> io::Error {
    ErrorKind::OutOfMemory.into()
}

/// Records a malformed chunked body. Returns the I/O error for the reader of the body.
fn record_malformed_body(_: ChunkFault, figures: &ListenerFigures) -> io::Error {
    figures.record_close(CloseReason::ChunksInvalid);
    io::Error::new(ErrorKind::InvalidData, "the chunked framing is malformed")
}

impl AsyncRead for ClientConnection {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.unread.is_body_read() {
            return this.poll_behind(cx);
        }
        let before = buffer.filled().len();
        put_end(&mut this.unread, buffer);
        if buffer.filled().len() > before {
            this.mark_busy_if_read();
            return Poll::Ready(Ok(()));
        }
        if this.head.poll_gave_way(cx).is_ready() {
            this.figures.record_close(CloseReason::HeadBudgetExhausted);
            return Poll::Ready(Err(gave_way(HeadBudgetExhausted)));
        }
        let malformed = |fault| record_malformed_body(fault, &this.figures);
        if !this.ahead.is_empty() {
            let fits = this.ahead.get(..buffer.remaining()).unwrap_or(&this.ahead);
            let due = this.unread.consume(fits).map_err(malformed)?;
            buffer.put_slice(&this.ahead.split_to(due));
        } else {
            if Pin::new(&mut this.stream).poll_read(cx, buffer)?.is_pending() {
                return match this.unread.has_more() {
                    true => this.body_timer.poll_late(cx),
                    false => Poll::Pending,
                };
            }
            let came = buffer.filled().get(before..).unwrap_or_default();
            this.body_timer.on_bytes(came.len());
            let due = this.unread.consume(came).map_err(malformed)?;
            if let Some(behind @ [_, ..]) = came.get(due..) {
                this.ahead.extend_from_slice(behind);
                buffer.set_filled(before + due);
            }
        }
        put_end(&mut this.unread, buffer);
        this.mark_busy_if_read();
        this.skip_trailers()?;
        Poll::Ready(this.count_http2_head())
    }
}

impl AsyncWrite for ClientConnection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write(cx, bytes);
        let count = written_bytes(&result);
        self.on_write(cx, result, count)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        let count = written_bytes(&result);
        self.on_write(cx, result, count)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.stream).poll_flush(cx);
        self.on_write(cx, result, 0)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.stream).poll_shutdown(cx);
        self.on_write(cx, result, 0)
    }
}

fn written_bytes(result: &Poll<io::Result<usize>>) -> usize {
    match result {
        Poll::Ready(Ok(count)) => *count,
        _ => 0,
    }
}

#[async_trait]
impl Shutdown for ClientConnection {
    async fn shutdown(&mut self) {
        // `poll_shutdown` applies the time limit of a write.
        let _ = tokio::io::AsyncWriteExt::shutdown(self).await;
    }
}

#[async_trait]
impl Peek for ClientConnection {
    /// Copies stored bytes into `buffer`. Pingora peeks only for the HTTP/2 preface. The preface has already arrived, because the
    /// front passes a connection on as HTTP/2 only after that.
    async fn try_peek(&mut self, buffer: &mut [u8]) -> io::Result<bool> {
        let count = buffer.len().min(self.ahead.len());
        self.ahead.as_ref().copy_to_slice(buffer.split_at_mut(count).0);
        Ok(true)
    }
}

impl UniqueID for ClientConnection {
    fn id(&self) -> UniqueIDType {
        self.stream.id()
    }
}

impl Ssl for ClientConnection {
    fn get_ssl(&self) -> Option<&TlsRef> {
        self.stream.get_ssl()
    }

    fn get_ssl_digest(&self) -> Option<Arc<SslDigest>> {
        self.stream.get_ssl_digest()
    }

    fn selected_alpn_proto(&self) -> Option<ALPN> {
        self.stream.selected_alpn_proto()
    }
}

impl GetTimingDigest for ClientConnection {
    /// Returns no times, because nothing reads them.
    fn get_timing_digest(&self) -> Vec<Option<TimingDigest>> {
        Vec::new()
    }
}

impl GetProxyDigest for ClientConnection {
    fn get_proxy_digest(&self) -> Option<Arc<ProxyDigest>> {
        self.stream.get_proxy_digest()
    }
}

impl GetSocketDigest for ClientConnection {
    fn get_socket_digest(&self) -> Option<Arc<SocketDigest>> {
        self.stream.get_socket_digest()
    }
}
