//! A client's connection under Pingora's HTTP/1.1 parser.
//!
//! It passes everything through until a request asks to outlive its client ([`ClientStream::watch`]). If the client then
//! leaves, and its [`Presence`] says that the answer is to be read all the same, the socket is closed at once; from then on
//! writes are swallowed and reads wait, so that Pingora notices nothing and goes on to the answer's end. Over HTTP/2 the
//! connection has many requests: nothing is ever watched here then (see [`super::client_h2`]).

use std::{
    io::{self, ErrorKind, IoSlice},
    pin::Pin,
    sync::{Arc, Mutex, PoisonError, Weak},
    task::{Context, Poll, ready},
    time::Duration,
};

use async_trait::async_trait;
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
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::Sleep,
};

use crate::gateway::presence::Presence;

/// See the module.
#[derive(Debug)]
pub struct ClientStream {
    /// `None` once it has been given up.
    stream: Option<Stream>,
    id: UniqueIDType,
    /// The client of the running request. Over with the request, so that the next one finds a plain connection. Looked at
    /// when something is read, or goes wrong; never by a write that succeeds.
    presence: Mutex<Weak<Presence>>,
    /// The client has closed its sending side.
    ended: bool,
    /// Runs while the client takes no bytes.
    stalled: Option<Pin<Box<Sleep>>>,
    /// Turns true when the gateway takes nothing new.
    closing: ShutdownWatch,
}

impl ClientStream {
    /// Passes everything through. A connection on which nothing has been asked ends when `closing` turns true.
    pub fn new(stream: Stream, closing: ShutdownWatch) -> Self {
        Self {
            id: stream.id(),
            stream: Some(stream),
            presence: Mutex::new(Weak::new()),
            ended: false,
            stalled: None,
            closing,
        }
    }

    /// For as long as this request runs, its client may leave without its being ended.
    pub fn watch(&self, presence: &Arc<Presence>) {
        *self.presence.lock().unwrap_or_else(PoisonError::into_inner) = Arc::downgrade(presence);
    }

    fn presence(&self) -> Option<Arc<Presence>> {
        let watched = self.presence.lock().unwrap_or_else(PoisonError::into_inner).upgrade();
        watched.filter(|presence| !presence.is_over())
    }

    /// The client has left. True when that is nobody's business but ours: the socket is closed then.
    fn give_up(&mut self) -> bool {
        let goes_on = self.presence().is_some_and(|presence| presence.leaves());
        if goes_on {
            self.stream = None;
        }
        goes_on
    }

    /// What came of writing: `swallowed` in the place of a failure that nobody needs to hear of.
    fn written<T>(&mut self, cx: &mut Context<'_>, result: Poll<io::Result<T>>, swallowed: T) -> Poll<io::Result<T>> {
        let error = match result {
            Poll::Ready(Ok(done)) => {
                self.stalled = None;
                return Poll::Ready(Ok(done));
            }
            Poll::Ready(Err(error)) => error,
            Poll::Pending => {
                // Without a watched request Pingora's own limit holds.
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
            // Nothing will ever come. Whoever waits here waits for something else at the same time.
            return Poll::Pending;
        }
        let Some(stream) = &mut this.stream else {
            return Poll::Ready(Ok(()));
        };
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
            // Whoever sends something behind a request whose answer runs breaks the exchange off, too.
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
        let Some(stream) = &mut self.stream else {
            return Poll::Ready(Ok(bytes.len()));
        };
        let result = Pin::new(stream).poll_write(cx, bytes);
        self.written(cx, result, bytes.len())
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let all = || slices.iter().map(|slice| slice.len()).sum();
        let Some(stream) = &mut self.stream else {
            return Poll::Ready(Ok(all()));
        };
        let result = Pin::new(stream).poll_write_vectored(cx, slices);
        self.written(cx, result, all())
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
    async fn try_peek(&mut self, buffer: &mut [u8]) -> io::Result<bool> {
        let Some(stream) = &mut self.stream else {
            return Ok(false);
        };
        // Pingora looks at a connection's first bytes before anything else, however long they take to come.
        tokio::select! {
            biased;
            peeked = stream.try_peek(buffer) => peeked,
            _ = self.closing.wait_for(|closing| *closing) => Err(ErrorKind::ConnectionAborted.into()),
        }
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
