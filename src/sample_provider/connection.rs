//! A socket that can be closed with RST instead of FIN, and response bodies that follow the steps of a response.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// The flag by which a response makes its connection end with RST.
#[derive(Clone, Debug, Default)]
pub(super) struct ResetFlag(Arc<AtomicBool>);

impl ResetFlag {
    /// Makes the connection end with RST.
    pub(super) fn raise(&self) {
        self.0.store(true, Ordering::Release);
    }
}

/// A socket with its flag.
#[derive(Debug)]
pub(super) struct SampleConnection {
    stream: TcpStream,
    reset: ResetFlag,
}

impl SampleConnection {
    /// Wraps `stream`, and disables Nagle's algorithm.
    pub(super) fn new(stream: TcpStream, reset: ResetFlag) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        Ok(Self { stream, reset })
    }
}

impl Drop for SampleConnection {
    fn drop(&mut self) {
        if self.reset.0.load(Ordering::Acquire) {
            // If this fails, the peer sees FIN, which is also a cut.
            let _ = self.stream.set_zero_linger();
        }
    }
}

impl AsyncRead for SampleConnection {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for SampleConnection {
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
