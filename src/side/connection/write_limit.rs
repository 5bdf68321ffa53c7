//! A connection with a write timeout: it fails if the peer does not read in time.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

use crate::edges::connection_slots::ConnectionSlot;

/// A stream with a write timeout. The time runs from the first write that has to wait until a flush completes, so a peer that
/// reads a byte now and then gains nothing.
#[derive(Debug)]
pub(super) struct WriteLimit<S> {
    stream: S,
    limit: Duration,
    waiting: Option<Pin<Box<Sleep>>>,
    /// Notified when a write has to wait for the peer, and when everything is written.
    slot: Arc<ConnectionSlot>,
}

impl<S> WriteLimit<S> {
    pub(super) fn new(stream: S, limit: Duration, slot: Arc<ConnectionSlot>) -> Self {
        Self {
            stream,
            limit,
            waiting: None,
            slot,
        }
    }

    /// A write has to wait: fails when the time is over.
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
