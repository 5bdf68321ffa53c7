//! A client's connection under Pingora's HTTP/1.1 parser.
//!
//! It passes everything through until a request asks to outlive its client ([`ClientStream::watch`]). If the client
//! then disconnects and its [`Presence`] says that the answer is to be read anyway, the socket is closed at once. From
//! then on writes are discarded and reads stay pending, so Pingora reads the answer to its end. An HTTP/2 connection
//! carries many requests, so nothing is watched or delayed here then (see [`super::client_h2`]).

use std::{
    io::{self, ErrorKind, IoSlice},
    pin::Pin,
    sync::{Arc, Weak},
    task::{Context, Poll, ready},
    time::Duration,
};

use async_trait::async_trait;
use bytes::{Buf, BytesMut};
use parking_lot::Mutex;
use pingora::{
    protocols::{
        ALPN, GetProxyDigest, GetSocketDigest, GetTimingDigest, Peek, Shutdown, SocketDigest, Ssl, Stream,
        TimingDigest, UniqueID, UniqueIDType,
        raw_connect::ProxyDigest,
        tls::{SslDigest, TlsRef},
    },
    server::ShutdownWatch,
};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf},
    time::Sleep,
};

use crate::gateway::{gate::Gate, keepalive::Parking, presence::Presence};

/// How an HTTP/2 connection begins (RFC 9113 section 3.4).
const H2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// A client's TCP stream, wrapped. [`super::front`] makes one for each connection.
#[derive(Debug)]
pub struct ClientStream {
    /// `None` once the socket has been given up.
    stream: Option<Stream>,
    id: UniqueIDType,
    /// The client of the running request. The reference is weak, so it ends with the request and the next one finds a
    /// plain connection. Read when a read completes or something fails, never by a write that succeeds.
    presence: Mutex<Weak<Presence>>,
    /// Delays the last bytes of an answer.
    gate: Arc<Gate>,
    /// The client has closed its sending side.
    ended: bool,
    /// Runs while the client accepts no bytes.
    stalled: Option<Pin<Box<Sleep>>>,
    /// Bytes read by `try_peek` and not consumed yet.
    peeked: BytesMut,
    /// Where the connection waits if its request has failed but it can carry others.
    parking: Weak<Parking>,
    /// Turns true when the gateway accepts no new requests.
    closing: ShutdownWatch,
}

impl ClientStream {
    /// Wraps a connection. A connection without a request ends when `closing` turns true.
    pub fn new(stream: Stream, parking: Weak<Parking>, closing: ShutdownWatch) -> Self {
        Self {
            id: stream.id(),
            stream: Some(stream),
            presence: Mutex::new(Weak::new()),
            gate: Arc::default(),
            ended: false,
            stalled: None,
            peeked: BytesMut::new(),
            parking,
            closing,
        }
    }

    /// Where the connection waits after a failed request; `None` once nobody would take it from there.
    pub fn parking(&self) -> Option<Arc<Parking>> {
        self.parking.upgrade()
    }

    /// Lets this request outlive its client: while the request runs, a disconnect is reported to `presence`.
    pub fn watch(&self, presence: &Arc<Presence>) {
        *self.presence.lock() = Arc::downgrade(presence);
    }

    /// The gate that delays the last bytes of an answer.
    pub fn gate(&self) -> &Arc<Gate> {
        &self.gate
    }

    fn presence(&self) -> Option<Arc<Presence>> {
        let watched = self.presence.lock().upgrade();
        watched.filter(|presence| !presence.is_over())
    }

    /// The client has disconnected. Returns true if the request goes on without it; the socket is closed then.
    fn give_up(&mut self) -> bool {
        let goes_on = self.presence().is_some_and(|presence| presence.leaves());
        if goes_on {
            self.stream = None;
        }
        goes_on
    }

    /// The result of a write. A failure becomes `swallowed` if the request goes on without its client.
    fn written<T>(&mut self, cx: &mut Context<'_>, result: Poll<io::Result<T>>, swallowed: T) -> Poll<io::Result<T>> {
        let error = match result {
            Poll::Ready(Ok(done)) => {
                self.stalled = None;
                return Poll::Ready(Ok(done));
            }
            Poll::Ready(Err(error)) => error,
            Poll::Pending => {
                // Without a watched request Pingora's own write timeout applies.
                let Some(presence) = self.presence() else {
                    return Poll::Pending;
                };
                let stalled = self
                    .stalled
                    .get_or_insert_with(|| Box::pin(tokio::time::sleep(presence.write_limit())));
                ready!(stalled.as_mut().poll(cx));
                ErrorKind::TimedOut.into()
            }
        };
        self.stalled = None;
        Poll::Ready(if self.give_up() { Ok(swallowed) } else { Err(error) })
    }
}

impl AsyncRead for ClientStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if (this.stream.is_none() || this.ended) && this.presence().is_some() {
            // Nothing will ever arrive. Pingora waits for the provider at the same time.
            return Poll::Pending;
        }
        let Some(stream) = &mut this.stream else {
            return Poll::Ready(Ok(()));
        };
        if !this.peeked.is_empty() {
            let count = buffer.remaining().min(this.peeked.len());
            buffer.put_slice(&this.peeked.split_to(count));
            if this.peeked.is_empty() {
                this.peeked = BytesMut::new();
            }
            return Poll::Ready(Ok(()));
        }
        let (before, has_room) = (buffer.filled().len(), buffer.remaining() > 0);
        let result = ready!(Pin::new(stream).poll_read(cx, buffer));
        let Some(presence) = this.presence().filter(|presence| presence.has_asked()) else {
            return Poll::Ready(result);
        };
        let says_no_more = result.is_ok() && has_room && buffer.filled().len() == before;
        let goes_on = if says_no_more && presence.listens_on() {
            this.ended = presence.stops_sending();
            this.ended
        } else {
            // A client that sends more while its answer runs ends the exchange, too.
            this.give_up()
        };
        if goes_on {
            buffer.set_filled(before);
            return Poll::Pending;
        }
        Poll::Ready(result)
    }
}

impl AsyncWrite for ClientStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        let Some(stream) = &mut this.stream else {
            return Poll::Ready(Ok(bytes.len()));
        };
        ready!(this.gate.poll_open(cx));
        let result = Pin::new(stream).poll_write(cx, bytes);
        this.written(cx, result, bytes.len())
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let all = || slices.iter().map(|slice| slice.len()).sum();
        let this = &mut *self;
        let Some(stream) = &mut this.stream else {
            return Poll::Ready(Ok(all()));
        };
        ready!(this.gate.poll_open(cx));
        let result = Pin::new(stream).poll_write_vectored(cx, slices);
        this.written(cx, result, all())
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.as_ref().is_none_or(AsyncWrite::is_write_vectored)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some(stream) = &mut self.stream else {
            return Poll::Ready(Ok(()));
        };
        let result = Pin::new(stream).poll_flush(cx);
        self.written(cx, result, ())
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.stream {
            Some(stream) => Pin::new(stream).poll_shutdown(cx),
            None => Poll::Ready(Ok(())),
        }
    }
}

#[async_trait]
impl Shutdown for ClientStream {
    async fn shutdown(&mut self) {
        if let Some(stream) = &mut self.stream {
            stream.shutdown().await;
        }
    }
}

#[async_trait]
impl Peek for ClientStream {
    /// Pingora asks for as many bytes as the HTTP/2 preface has. A whole request may be shorter (`GET / HTTP/1.0`), so
    /// this waits only while the bytes may still be the preface; the rest of `buffer` stays untouched.
    async fn try_peek(&mut self, buffer: &mut [u8]) -> io::Result<bool> {
        let Some(stream) = &mut self.stream else {
            return Ok(false);
        };
        while self.peeked.len() < buffer.len() && H2_PREFACE.starts_with(&self.peeked) {
            let mut missing = stream.take((buffer.len() - self.peeked.len()) as u64);
            // Pingora looks at a connection's first bytes before anything else, however long they take to come.
            let read = tokio::select! {
                biased;
                read = missing.read_buf(&mut self.peeked) => read?,
                Ok(_) = self.closing.wait_for(|closing| *closing) => return Err(ErrorKind::ConnectionAborted.into()),
            };
            if read == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
        }
        let count = buffer.len().min(self.peeked.len());
        self.peeked.as_ref().copy_to_slice(buffer.split_at_mut(count).0);
        Ok(true)
    }
}

impl UniqueID for ClientStream {
    fn id(&self) -> UniqueIDType {
        self.id
    }
}

impl Ssl for ClientStream {
    fn get_ssl(&self) -> Option<&TlsRef> {
        self.stream.as_ref()?.get_ssl()
    }

    fn get_ssl_digest(&self) -> Option<Arc<SslDigest>> {
        self.stream.as_ref()?.get_ssl_digest()
    }

    fn selected_alpn_proto(&self) -> Option<ALPN> {
        self.stream.as_ref()?.selected_alpn_proto()
    }
}

impl GetTimingDigest for ClientStream {
    fn get_timing_digest(&self) -> Vec<Option<TimingDigest>> {
        self.stream
            .as_ref()
            .map(|stream| stream.get_timing_digest())
            .unwrap_or_default()
    }

    fn get_read_pending_time(&self) -> Duration {
        self.stream
            .as_ref()
            .map_or(Duration::ZERO, |stream| stream.get_read_pending_time())
    }

    fn get_write_pending_time(&self) -> Duration {
        self.stream
            .as_ref()
            .map_or(Duration::ZERO, |stream| stream.get_write_pending_time())
    }
}

impl GetProxyDigest for ClientStream {
    fn get_proxy_digest(&self) -> Option<Arc<ProxyDigest>> {
        self.stream.as_ref()?.get_proxy_digest()
    }
}

impl GetSocketDigest for ClientStream {
    fn get_socket_digest(&self) -> Option<Arc<SocketDigest>> {
        self.stream.as_ref()?.get_socket_digest()
    }
}

#[cfg(test)]
mod tests;
