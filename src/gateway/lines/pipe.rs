//! Streams that look to Pingora like a new connection to a provider, although the request on them is sent over a WebSocket.

use std::{
    fmt, io,
    net::TcpStream as SocketHandle,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::{Buf, Bytes};
use pingora::{
    Result,
    protocols::{
        GetProxyDigest, Stream,
        l4::{
            stream::Stream as ConnectionStream,
            virt::{VirtualSockOpt, VirtualSocket, VirtualSocketStream},
        },
    },
};
use tokio::{
    io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf},
    sync::oneshot,
};

use crate::gateway::attempt::deadline;

/// The end of the head of a request.
const HEAD_END: &[u8] = b"\r\n\r\n";

/// Turns a socket into a stream for Pingora. The time limits of the attempt use `handle` to shut down the connection to the
/// provider.
pub(super) fn stream(socket: impl VirtualSocket + 'static, handle: Arc<SocketHandle>) -> Result<ConnectionStream> {
    let mut stream = ConnectionStream::from(VirtualSocketStream::new(Box::new(socket)));
    stream.set_proxy_digest(deadline::digest_with(handle)?);
    Ok(stream)
}

/// Pingora's side of a request that is sent over a WebSocket. The bytes that Pingora writes are discarded, because the WebSocket
/// already has the body. The bytes that Pingora reads are the answer.
pub(super) struct RequestPipe {
    answer: DuplexStream,
    request: RequestEnd,
    /// Notified when Pingora has written the complete request; `None` after that.
    complete: Option<oneshot::Sender<()>>,
}

/// Finds the end of a request with a body of known length.
#[derive(Debug)]
struct RequestEnd {
    /// The number of bytes of [`HEAD_END`] that match the end of the bytes written so far.
    matched: usize,
    /// The number of bytes of the body that have not been written.
    remaining: usize,
}

impl RequestEnd {
    /// Handles the next bytes of the request. Returns true if they complete the request.
    fn push(&mut self, bytes: &[u8]) -> bool {
        let mut rest = bytes;
        while let (Some(awaited), Some((first, behind))) = (HEAD_END.get(self.matched), rest.split_first()) {
            self.matched = match first == awaited {
                true => self.matched + 1,
                false => usize::from(*first == b'\r'),
            };
            rest = behind;
        }
        self.remaining = self.remaining.saturating_sub(rest.len());
        self.matched == HEAD_END.len() && self.remaining == 0
    }
}

impl RequestPipe {
    /// Creates the pipe of a request with a body of `body_bytes` bytes. `complete` is notified when the request is complete.
    pub(super) fn new(answer: DuplexStream, body_bytes: usize, complete: oneshot::Sender<()>) -> Self {
        Self {
            answer,
            request: RequestEnd {
                matched: 0,
                remaining: body_bytes,
            },
            complete: Some(complete),
        }
    }
}

impl fmt::Debug for RequestPipe {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("RequestPipe")
            .field("request", &self.request)
            .finish_non_exhaustive()
    }
}

impl VirtualSocket for RequestPipe {
    fn set_socket_option(&self, _option: VirtualSockOpt) -> io::Result<()> {
        Ok(())
    }
}

impl AsyncRead for RequestPipe {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.answer).poll_read(cx, into)
    }
}

impl AsyncWrite for RequestPipe {
    fn poll_write(mut self: Pin<&mut Self>, _cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if self.request.push(bytes)
            && let Some(complete) = self.complete.take()
        {
            // If there is no receiver, the WebSocket has ended, and so has the answer.
            let _ = complete.send(());
        }
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// A connection on which the provider has refused the handshake. The provider's answer to the handshake becomes the answer to the
/// request, and the request is not sent.
pub(super) struct RefusedHandshake {
    /// The first bytes of the answer, which were read with its head.
    ahead: Bytes,
    connection: Stream,
}

impl RefusedHandshake {
    /// Creates the socket. `ahead` contains the bytes that have been read from the connection.
    pub(super) fn new(ahead: Bytes, connection: Stream) -> Self {
        Self { ahead, connection }
    }
}

impl fmt::Debug for RefusedHandshake {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("RefusedHandshake").finish_non_exhaustive()
    }
}

impl VirtualSocket for RefusedHandshake {
    fn set_socket_option(&self, _option: VirtualSockOpt) -> io::Result<()> {
        Ok(())
    }
}

impl AsyncRead for RefusedHandshake {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.ahead.is_empty() {
            return Pin::new(&mut self.connection).poll_read(cx, into);
        }
        let count = self.ahead.len().min(into.remaining());
        into.put_slice(self.ahead.get(..count).unwrap_or_default());
        self.ahead.advance(count);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for RefusedHandshake {
    fn poll_write(self: Pin<&mut Self>, _cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.connection).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    const REQUEST: &[u8] = b"POST /v1/responses HTTP/1.1\r\na: \r\r\nb: c\r\n\r\n{\"a\":\r\n\r\n1}";
    const BODY_BYTES: usize = 11;

    #[test]
    fn a_request_is_complete_with_the_last_byte_of_its_body_however_it_is_written() {
        for step in 1..=REQUEST.len() {
            let mut end = RequestEnd {
                matched: 0,
                remaining: BODY_BYTES,
            };
            let complete: Vec<bool> = REQUEST.chunks(step).map(|piece| end.push(piece)).collect();
            let (last, before) = complete.split_last().expect("pieces");
            assert!(last & before.iter().all(|complete| !complete), "{step}");
        }
    }

    #[tokio::test]
    async fn the_writer_of_the_answer_learns_that_the_request_is_complete() {
        let (ours, mut theirs) = duplex(64);
        let (complete, mut completed) = oneshot::channel();
        let mut pipe = RequestPipe::new(ours, BODY_BYTES, complete);
        let (head, body) = REQUEST.split_at(REQUEST.len() - 1);
        pipe.write_all(head).await.expect("written");
        assert!(completed.try_recv().is_err());
        pipe.write_all(body).await.expect("written");
        completed.try_recv().expect("complete");
        theirs.write_all(b"HTTP/1.1 200 OK\r\n").await.expect("room");
        drop(theirs);
        let mut answer = Vec::new();
        pipe.read_to_end(&mut answer).await.expect("read");
        assert_eq!(answer, b"HTTP/1.1 200 OK\r\n");
    }

    #[tokio::test]
    async fn the_answer_to_a_refused_handshake_is_read_to_its_end() {
        let (ours, mut theirs) = duplex(64);
        let mut socket = RefusedHandshake::new(Bytes::from_static(b"HTTP/1.1 401 "), Box::new(ours));
        theirs.write_all(b"Unauthorized\r\n\r\n").await.expect("room");
        drop(theirs);
        socket.write_all(b"POST").await.expect("discarded");
        let mut answer = Vec::new();
        socket.read_to_end(&mut answer).await.expect("read");
        assert_eq!(answer, b"HTTP/1.1 401 Unauthorized\r\n\r\n");
    }
}
