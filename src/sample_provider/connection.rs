//! A socket that can be told to end with RST instead of FIN.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// Told to a connection from within one of its responses.
#[derive(Clone, Debug, Default)]
pub(super) struct ResetFlag(Arc<AtomicBool>);

impl ResetFlag {
    /// The connection is to end with RST.
    pub(super) fn raise(&self) {
        self.0.store(true, Ordering::Release);
    }
}

/// A socket and its flag.
#[derive(Debug)]
pub(super) struct Connection {
    stream: TcpStream,
    reset: ResetFlag,
}

impl Connection {
    /// Wraps `stream`; small writes go out at once.
    pub(super) fn new(stream: TcpStream, reset: ResetFlag) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        Ok(Self { stream, reset })
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if self.reset.0.load(Ordering::Acquire) {
            // If this fails the peer sees FIN: still a cut.
            let _ = self.stream.set_zero_linger();
        }
    }
}

impl AsyncRead for Connection {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
