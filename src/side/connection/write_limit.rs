//! A connection with a write timeout: it breaks if its reader does not keep up.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

use crate::edges::connection_slots::ConnectionSlot;

/// Passes everything through. The limit runs from the first write that has to wait until a flush has left nothing, so a
/// reader that takes a byte now and then gains nothing.
#[derive(Debug)]
pub(super) struct WriteLimit<S> {
    stream: S,
    limit: Duration,
    waiting: Option<Pin<Box<Sleep>>>,
    /// Told when its reader is waited for, and when that has all.
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

    /// The reader is waited for: until when?
    fn late<T>(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
        if self.waiting.is_none() {
            self.slot.is_untaken(true);
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
            Poll::Pending => self.late(cx),
            written @ Poll::Ready(_) => written,
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match Pin::new(&mut self.stream).poll_flush(cx) {
            Poll::Pending => self.late(cx),
            flushed @ Poll::Ready(_) => {
                if self.waiting.take().is_some() {
                    self.slot.is_untaken(false);
                }
                flushed
            }
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match Pin::new(&mut self.stream).poll_shutdown(cx) {
            Poll::Pending => self.late(cx),
            ended @ Poll::Ready(_) => ended,
        }
    }
}
