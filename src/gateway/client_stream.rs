//! A client's connection during one HTTP/1.1 request.
//!
//! The connection passes everything through until [`ClientStream::watch`] allows the request to outlive its client. If the client
//! then disconnects and its [`Presence`] detaches the answer, the socket is closed at once. From then on, writes are discarded
//! and reads stay pending, so Pingora reads the answer to its end. An HTTP/2 connection carries many requests;
//! [`super::client_h2`] handles them.
//!
//! This module also decides whether the connection carries further requests. If a request fails, this module can take its
//! connection out of Pingora, so that the connection stays open for further requests.

#[cfg(test)]
mod tests;

use std::{
    io::{self, IoSlice},
    pin::Pin,
    sync::{Arc, Weak},
    task::{Context, Poll, ready},
    time::Duration,
};

use async_trait::async_trait;
use bytes::{Buf, BytesMut};
use http::Version;
use parking_lot::Mutex;
use pingora::protocols::{
    ALPN, GetProxyDigest, GetSocketDigest, GetTimingDigest, Peek, Shutdown, SocketDigest, Ssl, Stream, TimingDigest,
    UniqueID, UniqueIDType,
    http::ServerSession,
    raw_connect::ProxyDigest,
    tls::{SslDigest, TlsRef},
};
use pingora_proxy::Session;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::Sleep,
};

use crate::{
    front::connection::ClientConnection,
    gateway::{
        drain::Drain, handshake::SocketHandshake, held_head::WriteAction, presence::Presence, provider_state::WriteGate,
    },
};

/// A client's connection, wrapped for one request. [`crate::gateway`] creates a wrapper for each request.
#[derive(Debug)]
pub(crate) struct ClientStream {
    /// The connection; `None` once the socket is closed because the answer is detached.
    stream: Option<Box<ClientConnection>>,
    id: UniqueIDType,
    /// The presence of the running request's client. The reference is weak, so that the presence ends with the request. The lock
    /// is taken when a read completes or a call fails, never by a successful write.
    presence: Mutex<Weak<Presence>>,
    /// Delays the head and the last bytes of an answer.
    gate: Arc<WriteGate>,
    /// Wakes the connection when a held head must be sent; `None` before the first held head.
    head_due: Option<Pin<Box<Sleep>>>,
    /// The bytes of an answer's head that are not sent yet.
    unsent: BytesMut,
    /// Whether the client has closed its sending side.
    ended: bool,
    /// The storage for this connection if its request fails but the connection can carry others.
    parking: Weak<ConnectionParking>,
}

impl ClientStream {
    /// Wraps a connection for one request.
    pub(crate) fn new(stream: Box<ClientConnection>, parking: Weak<ConnectionParking>) -> Self {
        Self {
            id: stream.id(),
            stream: Some(stream),
            presence: Mutex::new(Weak::new()),
            gate: Arc::default(),
            head_due: None,
            unsent: BytesMut::new(),
            ended: false,
            parking,
        }
    }

    /// Returns the connection for the next request; `None` if its socket has been closed.
    pub(crate) fn into_connection(self) -> Option<Box<ClientConnection>> {
        self.stream
    }

    /// Returns the storage that keeps the connection after a failed request. Returns `None` if the storage no longer exists. A
    /// connection must not be stored then, because nothing would take it out of the storage.
    pub(crate) fn parking(&self) -> Option<Arc<ConnectionParking>> {
        self.parking.upgrade()
    }

    /// Lets this request outlive its client: while the request runs, a disconnect is reported to `presence`.
    pub(crate) fn watch(&self, presence: &Arc<Presence>) {
        *self.presence.lock() = Arc::downgrade(presence);
    }

    /// The gate that delays the head and the last bytes of an answer.
    pub(crate) fn gate(&self) -> &Arc<WriteGate> {
        &self.gate
    }

    fn presence(&self) -> Option<Arc<Presence>> {
        let watched = self.presence.lock().upgrade();
        watched.filter(|presence| !presence.is_over())
    }

    /// Handles a disconnect of the client. If the request continues without the client, closes the socket and returns true.
    fn on_disconnect(&mut self) -> bool {
        let goes_on = self.presence().is_some_and(|presence| presence.on_disconnect());
        if goes_on {
            self.stream = None;
        }
        goes_on
    }

    /// Sends the head of an answer once the head has waited too long for the body.
    fn poll_due_head(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        if let Some(due) = self.gate.head.due() {
            let due = due.into();
            let sleep = self
                .head_due
                .get_or_insert_with(|| Box::pin(tokio::time::sleep_until(due)));
            if sleep.deadline() != due {
                sleep.as_mut().reset(due);
            }
            if sleep.as_mut().poll(cx).is_pending() {
                return Ok(());
            }
            self.unsent = self.gate.head.send().unwrap_or_default();
        }
        if self.unsent.is_empty() {
            return Ok(());
        }
        match self.poll_unsent(cx) {
            Poll::Ready(sent) => {
                sent?;
                let flushed = self.stream.as_mut().map(|stream| Pin::new(stream).poll_flush(cx));
                match self.on_write(flushed.unwrap_or(Poll::Ready(Ok(()))), ()) {
                    Poll::Ready(result) => result,
                    Poll::Pending => Ok(()),
                }
            }
            Poll::Pending => Ok(()),
        }
    }

    /// Sends the unsent bytes of the head.
    fn poll_unsent(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.unsent.is_empty() {
            let Some(stream) = &mut self.stream else {
                self.unsent.clear();
                break;
            };
            let result = Pin::new(stream).poll_write(cx, &self.unsent);
            let left = self.unsent.len();
            match ready!(self.on_write(result, left))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                sent => self.unsent.advance(sent.min(left)),
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Handles bytes that Pingora writes, if they are a held head. Saves the bytes if the body follows in the same call, and
    /// drops them if the client already has the head. Returns false for other bytes, which the caller must send.
    fn absorb_head(&mut self, slices: &[IoSlice<'_>]) -> bool {
        match self.gate.head.write_action() {
            WriteAction::Send => return false,
            WriteAction::Keep => slices.iter().for_each(|slice| self.unsent.extend_from_slice(slice)),
            WriteAction::Discard => {}
        }
        self.head_due = None;
        true
    }

    /// Converts the result of a write. If the request continues without its client, a failure becomes `Ok(swallowed)`.
    fn on_write<T>(&mut self, result: Poll<io::Result<T>>, swallowed: T) -> Poll<io::Result<T>> {
        match result {
            Poll::Ready(Err(error)) => Poll::Ready(if self.on_disconnect() {
                Ok(swallowed)
            } else {
                Err(error)
            }),
            done => done,
        }
    }
}

impl AsyncRead for ClientStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        this.poll_due_head(cx)?;
        if (this.stream.is_none() || this.ended) && this.presence().is_some() {
            // Nothing more can arrive, so the read stays pending. Pingora waits for the provider at the same time.
            return Poll::Pending;
        }
        let Some(stream) = &mut this.stream else {
            return Poll::Ready(Ok(()));
        };
        let (before, has_room) = (buffer.filled().len(), buffer.remaining() > 0);
        let result = ready!(Pin::new(stream).poll_read(cx, buffer));
        let Some(presence) = this.presence().filter(|presence| presence.is_request_read()) else {
            return Poll::Ready(result);
        };
        let says_no_more = result.is_ok() && has_room && buffer.filled().len() == before;
        let goes_on = if says_no_more && presence.may_still_read() {
            this.ended = presence.on_half_close();
            this.ended
        } else {
            this.on_disconnect()
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
        if this.absorb_head(&[IoSlice::new(bytes)]) {
            return Poll::Ready(Ok(bytes.len()));
        }
        ready!(this.gate.poll_open(cx));
        ready!(this.poll_unsent(cx))?;
        let Some(stream) = &mut this.stream else {
            return Poll::Ready(Ok(bytes.len()));
        };
        let result = Pin::new(stream).poll_write(cx, bytes);
        this.on_write(result, bytes.len())
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let all = || slices.iter().map(|slice| slice.len()).sum();
        let this = &mut *self;
        if this.absorb_head(slices) {
            return Poll::Ready(Ok(all()));
        }
        ready!(this.gate.poll_open(cx));
        ready!(this.poll_unsent(cx))?;
        let Some(stream) = &mut this.stream else {
            return Poll::Ready(Ok(all()));
        };
        let result = Pin::new(stream).poll_write_vectored(cx, slices);
        this.on_write(result, all())
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.as_ref().is_none_or(AsyncWrite::is_write_vectored)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.absorb_head(&[]) {
            return Poll::Ready(Ok(()));
        }
        ready!(self.poll_unsent(cx))?;
        let Some(stream) = &mut self.stream else {
            return Poll::Ready(Ok(()));
        };
        let result = Pin::new(stream).poll_flush(cx);
        self.on_write(result, ())
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // The rest of the head is sent first. Without it, the client would see no answer at all instead of a broken one.
        ready!(self.poll_unsent(cx))?;
        match &mut self.stream {
            Some(stream) => Pin::new(stream).poll_shutdown(cx),
            None => Poll::Ready(Ok(())),
        }
    }
}

#[async_trait]
impl Shutdown for ClientStream {
    async fn shutdown(&mut self) {
        // An error means that the client has disconnected.
        let _ = std::future::poll_fn(|cx| self.poll_unsent(cx)).await;
        if let Some(stream) = &mut self.stream {
            stream.shutdown().await;
        }
    }
}

impl Peek for ClientStream {}

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
    /// Returns no times, because nothing reads them.
    fn get_timing_digest(&self) -> Vec<Option<TimingDigest>> {
        Vec::new()
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

/// The storage for a client's connection while the session of its failed request ends. If the connection becomes a socket, the
/// storage contains the handshake. Each connection has a storage of its own.
#[derive(Debug, Default)]
pub(crate) struct ConnectionParking {
    connection: Mutex<Option<Stream>>,
    handshake: Mutex<Option<Box<SocketHandshake>>>,
}

impl ConnectionParking {
    /// Returns a weak reference to this storage, which the connection can contain. With a strong reference, a parked connection
    /// would keep itself alive.
    pub(crate) fn weak(self: &Arc<Self>) -> Weak<Self> {
        Arc::downgrade(self)
    }

    /// Stores the connection until [`Self::take`] removes it.
    pub(crate) fn put(&self, stream: Stream) {
        *self.connection.lock() = Some(stream);
    }

    /// Takes the parked connection; returns `None` if no connection is parked.
    pub(crate) fn take(&self) -> Option<Stream> {
        self.connection.lock().take()
    }

    /// Takes the accepted handshake; returns `None` if the connection continues with HTTP.
    pub(crate) fn take_handshake(&self) -> Option<Box<SocketHandshake>> {
        self.handshake.lock().take()
    }
}

/// Offers to keep the connection open for `idle` after this request, if the client wants that. An HTTP/1.0 connection is closed,
/// because only its end delimits an answer of unknown length.
pub(crate) fn offer_keepalive(session: &mut Session, idle: Duration) {
    let is_old = session.req_header().version == Version::HTTP_10;
    let is_wanted = session.get_keepalive().is_some();
    session.set_keepalive((is_wanted && !is_old).then_some(idle.as_secs()));
    // By default, Pingora closes every connection on which an answer, even `100 Continue`, begins before the request has been
    // read to its end. weir reads the rest of a body after the answer; if the rest is too long, `reply` closes the connection.
    session.set_close_on_response_before_downstream_finish(false);
}

/// Announces that the connection closes after the current answer, if the shutdown has begun.
pub(crate) fn withdraw_keepalive(session: &mut Session, drain: &Drain) {
    if drain.is_closing() {
        session.set_keepalive(None);
    }
}

/// Parks the client's connection after a failed request whose client got a complete answer. Does not park a connection that
/// cannot carry further requests.
///
/// Pingora closes the connection of every request that failed at its provider, even if the head of the client's complete answer
/// says `keep-alive`. A client with a connection pool would then write its next request into a closing connection. So the
/// connection is taken out of Pingora's session, and [`crate::gateway`] continues with it.
pub(crate) async fn park_connection(session: &mut Session) {
    let Some(parking) = parking_of(session) else {
        return;
    };
    let nobody = ServerSession::new_custom(Box::new(()));
    let finished = std::mem::replace(&mut *session.downstream_session, nobody);
    if let Ok(Some(stream)) = finished.finish().await {
        parking.put(stream.into_parts().0);
    }
}

/// Lets the connection leave Pingora after this request and become a socket. Pingora's session writes no answer, and returns the
/// connection as if another request could follow. After that, [`crate::gateway`] takes the stored handshake. Returns false if
/// there would be no way to take the connection out of Pingora.
pub(crate) fn leave_for_socket(session: &mut Session, handshake: Box<SocketHandshake>) -> bool {
    let Some(parking) = parking_of(session) else {
        return false;
    };
    *parking.handshake.lock() = Some(handshake);
    session.set_keepalive(Some(1));
    session.downstream_session.set_keepalive_reuses_remaining(None);
    true
}

fn parking_of(session: &Session) -> Option<Arc<ConnectionParking>> {
    let stream = session.downstream_session.stream()?;
    (**stream).as_any().downcast_ref::<ClientStream>()?.parking()
}
