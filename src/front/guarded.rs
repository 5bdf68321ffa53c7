//! A client's connection between the socket and Pingora's parsers.
//!
//! It owns what has arrived and is not due yet, so it knows where each head begins: a request can be read to its own end
//! only, and what a client sends behind it waits for the answer to end. It also closes the connection of a client that
//! does not take its answer.

mod digests;

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
use pingora::protocols::{Peek, Shutdown, Stream};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::Sleep,
};

use crate::{
    domain::{
        faults::pace::Pace,
        wire::{
            http1::{chunked::ChunkFault, head::Framing},
            http2::Frames,
        },
    },
    edges::{clock, connection_slots::ConnectionSlot},
    front::{
        client_times::ClientTimes,
        head_budget::{GaveWay, HeadLease},
        places::Place,
        unread::{Expected, Unread, put_end},
    },
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
    expected: Expected,
    taking: Pace,
    /// Set while the client does not take what is written.
    late: Option<Pin<Box<Sleep>>>,
    /// What of `ahead` is a head that has not come to its end, or of HTTP/2's frames.
    head: HeadLease,
    figures: ListenerFigures,
    _open: GaugeGuard,
    place: Option<Place>,
}

impl Guarded {
    /// The place is kept as long as the socket.
    pub(crate) fn new(
        stream: Stream,
        (place, head): (Option<Place>, HeadLease),
        times: ClientTimes,
        figures: ListenerFigures,
    ) -> Self {
        Self {
            stream,
            ahead: BytesMut::new(),
            unread: Unread::Nothing,
            expected: Expected::new(times.body),
            taking: Pace::new(times.answer),
            late: None,
            head,
            _open: figures.opened(),
            figures,
            place,
        }
    }

    pub(crate) fn figures(&self) -> &ListenerFigures {
        &self.figures
    }

    /// Where the connection may have to give way.
    pub(crate) fn slot(&self) -> Option<&Arc<ConnectionSlot>> {
        self.place.as_ref()?.slot()
    }

    /// What has arrived and was not passed on.
    pub(crate) fn ahead(&self) -> &[u8] {
        &self.ahead
    }

    /// Reads more of what comes ahead; 0 at the end of the connection. Nothing is lost if it is dropped.
    pub(crate) async fn read_ahead(&mut self) -> io::Result<usize> {
        poll_fn(|cx| self.poll_ahead(cx)).await
    }

    /// Reads more of a head that waits for its turn in `ahead`; 0 at the end of the connection. Nothing is lost if it is dropped. An error
    /// of the kind `OutOfMemory` says that the head gives way to others.
    pub(crate) async fn read_head(&mut self) -> io::Result<usize> {
        poll_fn(|cx| {
            if self.head.poll_gave_way(cx).is_ready() {
                return Poll::Ready(Err(gave_way(GaveWay)));
            }
            let count = ready!(self.poll_ahead(cx))?;
            self.head.hold(self.ahead.len()).map_err(gave_way)?;
            Poll::Ready(Ok(count))
        })
        .await
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

    /// Forgets all that has come ahead, and keeps no memory for it.
    pub(crate) fn forget_ahead(&mut self) {
        self.ahead = BytesMut::new();
        self.head.release();
    }

    /// Begins a request with a head of `length` bytes, which have arrived: the head, with as much of the body as came
    /// with it. The rest of the body can be read then.
    pub(crate) fn begin_request(&mut self, length: usize, framing: Framing) -> io::Result<BytesMut> {
        self.head.release();
        self.unread = framing.into();
        self.expected.restart();
        self.taking.restart();
        let length = length.min(self.ahead.len());
        let body = self.unread.take(self.ahead.get(length..).unwrap_or_default());
        let body = body.map_err(|fault| malformed(fault, &self.figures))?;
        let mut request = self.ahead.split_to(length + body);
        request.extend_from_slice(self.unread.end(usize::MAX));
        self.follow_trailers()?;
        self.note_whole();
        Ok(request)
    }

    /// Notes that the request that is being read has come to its end, if so.
    fn note_whole(&self) {
        if let Some(slot) = self.slot().filter(|_| self.unread.is_whole()) {
            slot.has_request();
        }
    }

    /// Passes everything from now on.
    pub(crate) fn begin_http2(&mut self) {
        self.head.release();
        self.unread = Unread::Everything(Frames::default());
    }

    /// Counts what has come of a head over HTTP/2 before its end.
    fn count_http2_head(&mut self) -> io::Result<()> {
        let Some(unfinished) = self.unread.unfinished_head() else {
            return Ok(());
        };
        self.head.hold_http2(unfinished).map_err(|gone| {
            self.figures.closed(CloseReason::HeadGaveWay);
            gave_way(gone)
        })
    }

    /// Waits for the trailers of the request, if there are some. False if no other request can follow: this one has not been
    /// read, or what is left of it does not come as it has to.
    pub(crate) async fn finish_request(&mut self) -> bool {
        self.unread.is_whole() && matches!(poll_fn(|cx| self.poll_trailers(cx)).await, Ok(true))
    }

    /// Whether the request has come to its end, trailers included; false if the client has closed its sending side before.
    fn poll_trailers(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<bool>> {
        loop {
            self.follow_trailers()?;
            if !self.unread.is_expected() {
                return Poll::Ready(Ok(true));
            }
            match self.poll_ahead(cx)? {
                Poll::Ready(0) => return Poll::Ready(Ok(false)),
                Poll::Ready(count) => self.expected.come(count),
                Poll::Pending => return self.expected.poll_late(cx).map_ok(|()| false),
            }
        }
    }

    /// Forgets what has come of the trailers: nobody gets them.
    fn follow_trailers(&mut self) -> io::Result<()> {
        let count = self.unread.follow(&self.ahead);
        self.ahead
            .advance(count.map_err(|fault| malformed(fault, &self.figures))?);
        Ok(())
    }

    /// Keeps what comes behind the request for later, until the client closes its sending side.
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

    fn note_untaken(&self, untaken: bool) {
        if let Some(slot) = self.slot() {
            slot.is_untaken(untaken);
        }
    }

    /// The result of a write, or that the client has left it for too long.
    fn taken<T>(&mut self, cx: &mut Context<'_>, result: Poll<io::Result<T>>, bytes: usize) -> Poll<io::Result<T>> {
        if result.is_ready() {
            self.taking.moved(bytes, clock::instant);
            if self.late.take().is_some() {
                self.note_untaken(false);
            }
            return result;
        }
        if self.late.is_none() {
            self.note_untaken(true);
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

fn gave_way(_: GaveWay) -> io::Error {
    ErrorKind::OutOfMemory.into()
}

/// Counts a chunked body that does not follow its framing.
fn malformed(_: ChunkFault, figures: &ListenerFigures) -> io::Error {
    figures.closed(CloseReason::ChunksInvalid);
    io::Error::new(ErrorKind::InvalidData, "the chunks do not follow their framing")
}

impl AsyncRead for Guarded {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.unread.is_whole() {
            return this.poll_behind(cx);
        }
        let before = buffer.filled().len();
        put_end(&mut this.unread, buffer);
        if buffer.filled().len() > before {
            this.note_whole();
            return Poll::Ready(Ok(()));
        }
        if this.head.poll_gave_way(cx).is_ready() {
            this.figures.closed(CloseReason::HeadGaveWay);
            return Poll::Ready(Err(gave_way(GaveWay)));
        }
        let malformed = |fault| malformed(fault, &this.figures);
        if !this.ahead.is_empty() {
            let fits = this.ahead.get(..buffer.remaining()).unwrap_or(&this.ahead);
            let due = this.unread.take(fits).map_err(malformed)?;
            buffer.put_slice(&this.ahead.split_to(due));
        } else {
            if Pin::new(&mut this.stream).poll_read(cx, buffer)?.is_pending() {
                return match this.unread.is_expected() {
                    true => this.expected.poll_late(cx),
                    false => Poll::Pending,
                };
            }
            let came = buffer.filled().get(before..).unwrap_or_default();
            this.expected.come(came.len());
            let due = this.unread.take(came).map_err(malformed)?;
            if let Some(behind @ [_, ..]) = came.get(due..) {
                this.ahead.extend_from_slice(behind);
                buffer.set_filled(before + due);
            }
        }
        put_end(&mut this.unread, buffer);
        this.note_whole();
        this.follow_trailers()?;
        Poll::Ready(this.count_http2_head())
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

#[cfg(test)]
mod tests;
