//! A client's connection between the socket and Pingora's parsers.
//!
//! It owns what has arrived and is not due yet, so it knows where each head begins: a request can be read to its own end
//! only, and what a client sends behind it waits for the answer to end. It also closes the connection of a client that
//! does not take its answer.

use std::{
    future::poll_fn,
    io::{self, ErrorKind, IoSlice},
    mem::MaybeUninit,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
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
        faults::pace::{Pace, PaceLimit},
        wire::http1::{chunked::Chunked, head::Framing},
    },
    edges::clock,
    front::places::Place,
    telemetry::metrics::{CloseReason, GaugeGuard, ListenerFigures},
};

/// The space for bytes that are read ahead of their request's turn.
const READ_BYTES: usize = 4096;

/// The most bytes kept for later while an answer runs; the rest stays in the kernel.
const AHEAD_BYTES_MAX: usize = 16 * 1024;

/// A connection that holds its place.
#[derive(Debug)]
pub(crate) struct Guarded {
    stream: Stream,
    ahead: BytesMut,
    unread: Unread,
    taking: Pace,
    /// Set while the client does not take what is written.
    late: Option<Pin<Box<Sleep>>>,
    figures: ListenerFigures,
    _open: GaugeGuard,
    _place: Option<Place>,
}

/// What may be read by whoever has the connection now.
#[derive(Debug)]
enum Unread {
    /// Everything: it speaks HTTP/2.
    Everything,
    /// So many bytes of the request's body.
    Length(u64),
    /// A chunked body.
    Chunked(Chunked),
    /// Nothing: the request has been read.
    Nothing,
}

impl Guarded {
    /// `taking` limits how long the client may leave its answer. The place is kept as long as the socket.
    pub(crate) fn new(stream: Stream, place: Option<Place>, taking: PaceLimit, figures: ListenerFigures) -> Self {
        Self {
            stream,
            ahead: BytesMut::new(),
            unread: Unread::Nothing,
            taking: Pace::new(taking),
            late: None,
            _open: figures.opened(),
            figures,
            _place: place,
        }
    }

    pub(crate) fn figures(&self) -> &ListenerFigures {
        &self.figures
    }

    /// What has arrived and was not passed on.
    pub(crate) fn ahead(&self) -> &[u8] {
        &self.ahead
    }

    /// Reads more of what comes ahead; 0 at the end of the connection. Nothing is lost if it is dropped.
    pub(crate) async fn read_ahead(&mut self) -> io::Result<usize> {
        poll_fn(|cx| self.poll_ahead(cx)).await
    }

    /// Memory is taken when something has come: most connections wait here for longer than for anything else.
    fn poll_ahead(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let mut space = [MaybeUninit::uninit(); READ_BYTES];
        let mut come = ReadBuf::uninit(&mut space);
        ready!(Pin::new(&mut self.stream).poll_read(cx, &mut come))?;
        self.ahead.extend_from_slice(come.filled());
        Poll::Ready(Ok(come.filled().len()))
    }

    /// Forgets the first bytes that have come ahead.
    pub(crate) fn skip_ahead(&mut self, count: usize) {
        self.ahead.advance(count.min(self.ahead.len()));
    }

    /// Begins a request with a head of `length` bytes, which have arrived: the head, with as much of the body as came
    /// with it. The rest of the body can be read then.
    pub(crate) fn begin_request(&mut self, length: usize, framing: Framing) -> io::Result<BytesMut> {
        self.unread = match framing {
            Framing::Empty => Unread::Nothing,
            Framing::Length(length) => Unread::Length(length),
            Framing::Chunked => Unread::Chunked(Chunked::default()),
        };
        self.taking.restart();
        let length = length.min(self.ahead.len());
        let body = self
            .unread
            .take(self.ahead.get(length..).unwrap_or_default(), &self.figures)?;
        Ok(self.ahead.split_to(length + body))
    }

    /// Passes everything from now on.
    pub(crate) fn begin_http2(&mut self) {
        self.unread = Unread::Everything;
    }

    /// Whether the request has been read to its end, so that another one can follow.
    pub(crate) fn is_at_end(&self) -> bool {
        matches!(self.unread, Unread::Nothing)
    }

    /// Keeps what comes behind the request for later, until the client closes its sending side.
    fn poll_behind(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.ahead.len() < AHEAD_BYTES_MAX {
            if ready!(self.poll_ahead(cx))? == 0 {
                return Poll::Ready(Ok(()));
            }
        }
        Poll::Pending
    }

    /// The result of a write, or that the client has left it for too long.
    fn taken<T>(&mut self, cx: &mut Context<'_>, result: Poll<io::Result<T>>, bytes: usize) -> Poll<io::Result<T>> {
        if result.is_ready() {
            self.taking.moved(bytes, clock::instant);
            self.late = None;
            return result;
        }
        let late = match &mut self.late {
            Some(late) => late,
            None => {
                let due = self.taking.wait(clock::instant());
                self.late.insert(Box::pin(tokio::time::sleep_until(due.into())))
            }
        };
        ready!(late.as_mut().poll(cx));
        self.late = None;
        self.figures.closed(CloseReason::AnswerUntaken);
        Poll::Ready(Err(ErrorKind::TimedOut.into()))
    }
}

impl Unread {
    /// How many of the bytes belong to what may be read; the rest comes behind it.
    fn take(&mut self, bytes: &[u8], figures: &ListenerFigures) -> io::Result<usize> {
        match self {
            Self::Everything => Ok(bytes.len()),
            Self::Nothing => Ok(0),
            Self::Length(left) => {
                let here = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes.len());
                *left -= here as u64;
                if *left == 0 {
                    *self = Self::Nothing;
                }
                Ok(here)
            }
            Self::Chunked(body) => {
                let end = body.push(bytes).map_err(|_| {
                    figures.closed(CloseReason::ChunksInvalid);
                    io::Error::new(ErrorKind::InvalidData, "the chunks do not follow their framing")
                })?;
                if end.is_some() {
                    *self = Self::Nothing;
                }
                Ok(end.unwrap_or(bytes.len()))
            }
        }
    }
}

impl AsyncRead for Guarded {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.is_at_end() {
            return this.poll_behind(cx);
        }
        if !this.ahead.is_empty() {
            let fits = this.ahead.get(..buffer.remaining()).unwrap_or(&this.ahead);
            let due = this.unread.take(fits, &this.figures)?;
            buffer.put_slice(&this.ahead.split_to(due));
            return Poll::Ready(Ok(()));
        }
        let before = buffer.filled().len();
        ready!(Pin::new(&mut this.stream).poll_read(cx, buffer))?;
        let came = buffer.filled().get(before..).unwrap_or_default();
        let due = this.unread.take(came, &this.figures)?;
        if let Some(behind @ [_, ..]) = came.get(due..) {
            this.ahead.extend_from_slice(behind);
            buffer.set_filled(before + due);
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Guarded {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write(cx, bytes);
        let count = written(&result);
        self.taken(cx, result, count)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        let count = written(&result);
        self.taken(cx, result, count)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.stream).poll_flush(cx);
        self.taken(cx, result, 0)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.stream).poll_shutdown(cx);
        self.taken(cx, result, 0)
    }
}

fn written(result: &Poll<io::Result<usize>>) -> usize {
    match result {
        Poll::Ready(Ok(count)) => *count,
        _ => 0,
    }
}

#[async_trait]
impl Shutdown for Guarded {
    async fn shutdown(&mut self) {
        // Within the limit for what is written.
        let _ = tokio::io::AsyncWriteExt::shutdown(self).await;
    }
}

#[async_trait]
impl Peek for Guarded {
    /// Pingora looks for the HTTP/2 preface, which has arrived when a connection is passed on as HTTP/2.
    async fn try_peek(&mut self, buffer: &mut [u8]) -> io::Result<bool> {
        let count = buffer.len().min(self.ahead.len());
        self.ahead.as_ref().copy_to_slice(buffer.split_at_mut(count).0);
        Ok(true)
    }
}

impl UniqueID for Guarded {
    fn id(&self) -> UniqueIDType {
        self.stream.id()
    }
}

impl Ssl for Guarded {
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

impl GetTimingDigest for Guarded {
    fn get_timing_digest(&self) -> Vec<Option<TimingDigest>> {
        self.stream.get_timing_digest()
    }

    fn get_read_pending_time(&self) -> Duration {
        self.stream.get_read_pending_time()
    }

    fn get_write_pending_time(&self) -> Duration {
        self.stream.get_write_pending_time()
    }
}

impl GetProxyDigest for Guarded {
    fn get_proxy_digest(&self) -> Option<Arc<ProxyDigest>> {
        self.stream.get_proxy_digest()
    }
}

impl GetSocketDigest for Guarded {
    fn get_socket_digest(&self) -> Option<Arc<SocketDigest>> {
        self.stream.get_socket_digest()
    }
}

#[cfg(test)]
mod tests;
