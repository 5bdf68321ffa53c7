//! The front: accepts clients' connections, and reads and checks the heads of their requests.
//!
//! The gateway and the public stability service use the front, which runs before Pingora's parsers. A connection needs a permit
//! ([`ConnectionPermit`]). A [`Transport`] turns the connection into a stream of HTTP. The heads of its requests are read one at
//! a time, within limits ([`Arrival`]). Each head is checked (`domain/wire/http1/head.rs`) before any other code reads it. A
//! [`Handler`] answers the requests.

pub(crate) mod connection;
pub(crate) mod head_budget;
pub(crate) mod head_reader;
pub(crate) mod http2;
pub(crate) mod permits;
pub(crate) mod tls;
mod unread;

use std::{
    io::{self, ErrorKind},
    net::{IpAddr, SocketAddr},
    pin::pin,
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use bytes::BytesMut;
use ipnet::IpNet;
use pingora::{
    apps::{HttpServerApp, ServerApp},
    protocols::{
        ALPN, SocketDigest, Ssl, Stream,
        http::ServerSession,
        l4::{socket::SocketAddr as Address, stream::Stream as Socket},
    },
    server::ShutdownWatch,
};
use tokio::io::AsyncReadExt;

use crate::{
    config::{Config, GatewayConfig},
    domain::{
        faults::{BodyTimeLimit, MinimumSpeed},
        wire::{
            http1::head::HeadLimits,
            proxy_protocol::{self, ProxyHeaderProgress},
        },
    },
    front::{
        connection::ClientConnection,
        head_budget::HeadBudget,
        head_reader::{Arrival, ArrivalLimits, Closing, ExpectedProtocol},
        http2::Http2Settings,
        permits::{ConnectionPermit, ConnectionPermits},
        tls::TlsListener,
    },
    providers::CurrentConfig,
    telemetry::metrics::{CloseReason, ListenerFigures},
};

/// The maximum number of bytes in a head for the method, the version and the line ends. The gateway's own limit
/// (`gateway/request/head.rs`) does not count these bytes.
const UNCOUNTED_BYTES: usize = 64;

/// The time, from the beginning of the shutdown, in which the client of an accepted connection can still send its first request.
/// A connection that has carried a request may be closed at any time.
pub(crate) const FIRST_REQUEST_WAIT: Duration = Duration::from_secs(3);

/// The application to which a listening service passes its connections.
pub(crate) struct Front<H> {
    handler: H,
    live: Arc<CurrentConfig>,
    permits: Arc<ConnectionPermits>,
    heads: HeadBudget,
    transport: Arc<dyn Transport>,
    figures: ListenerFigures,
}

impl<H: Handler> Front<H> {
    /// Creates a front for `handler`. Each connection uses the configuration that was current when the connection began.
    pub(crate) fn new(
        handler: H,
        live: Arc<CurrentConfig>,
        (permits, heads): (Arc<ConnectionPermits>, HeadBudget),
        transport: Arc<dyn Transport>,
        figures: ListenerFigures,
    ) -> Self {
        Self {
            handler,
            live,
            permits,
            heads,
            transport,
            figures,
        }
    }

    /// Turns a connection into a stream of HTTP, and counts the connection's permit for its client.
    async fn open(
        &self,
        stream: Stream,
        mut place: ConnectionPermit,
        config: &Config,
    ) -> Result<Box<ClientConnection>, CloseReason> {
        let peer = address(&stream);
        let announced = peer.is_some_and(|peer| self.transport.announces_client(peer));
        if !announced {
            claim(&mut place, peer)?;
        }
        let opening = tokio::time::timeout(config.connections.handshake, self.transport.open(stream));
        let Ok(Ok(stream)) = opening.await else {
            return Err(CloseReason::Handshake);
        };
        if announced {
            claim(&mut place, address(&stream))?;
        }
        let times = ClientTimes::new(&config.gateway);
        let head = self.heads.lease(place.client());
        let guarded = ClientConnection::new(stream, (Some(place), head), times, self.figures.clone());
        Ok(Box::new(guarded))
    }

    async fn serve_requests(
        &self,
        visit: &H::Visit,
        mut connection: Box<ClientConnection>,
        config: &Config,
        closing: &ShutdownWatch,
    ) {
        let mut spoken = match connection.selected_alpn_proto() {
            Some(ALPN::H2) => ExpectedProtocol::Http2,
            _ if connection.get_ssl_digest().is_some() => ExpectedProtocol::Http1,
            _ => ExpectedProtocol::Either,
        };
        let mut limits = ArrivalLimits {
            silence: config.connections.first_byte,
            head: config.connections.head,
            size: HeadLimits {
                bytes_max: config.gateway.header_bytes_max + UNCOUNTED_BYTES,
                fields_max: config.gateway.header_count_max,
            },
        };
        let requests_max = config.connections.requests_max;
        let expired_after = |patience| {
            let told = closing.clone();
            Closing {
                shutdown: told,
                patience,
            }
            .expired()
        };
        let mut timer = pin!(tokio::time::sleep(limits.silence));
        // Pinned once for the first and all other requests, so that this future contains it only once.
        let mut over = pin!(expired_after(FIRST_REQUEST_WAIT));
        for count in 1..=requests_max {
            if count == 2 {
                over.set(expired_after(Duration::ZERO));
            }
            let arriving = head_reader::next_request(&mut connection, spoken, limits, timer.as_mut(), over.as_mut());
            // Boxed: otherwise the future would reserve memory for a head while a request or a WebSocket is served.
            let bytes = match Box::pin(arriving).await {
                Ok(Arrival::Request(bytes)) => bytes,
                Ok(Arrival::Http2) => {
                    let settings = Http2Settings::new(config);
                    // Boxed: otherwise the future of every connection would reserve memory for the few that use HTTP/2.
                    let served = http2::serve(self.handler.app(), connection, settings, closing.clone());
                    return Box::pin(served).await;
                }
                Ok(Arrival::Nothing) => return,
                Err(CloseReason::Silent) if count > 1 => return self.figures.record_close(CloseReason::Idle),
                Err(reason) => {
                    self.figures.record_close(reason);
                    return Box::pin(head_reader::send_refusal(&mut connection, reason)).await;
                }
            };
            let is_last = count == requests_max;
            if is_last {
                self.figures.record_close(CloseReason::Requests);
            }
            let arrived = CheckedRequest { bytes, is_last };
            match self.handler.request(visit, arrived, connection, closing).await {
                Some(back) => {
                    if let Some(slot) = back.slot() {
                        slot.on_answered();
                    }
                    connection = back;
                }
                None => break,
            }
            spoken = ExpectedProtocol::Http1;
            limits.silence = config.gateway.keepalive;
        }
    }
}

fn claim(place: &mut ConnectionPermit, client: Option<IpAddr>) -> Result<(), CloseReason> {
    // A connection without an IP address, for example over a Unix socket, is not counted for any client.
    let claimed = client.is_none_or(|client| place.claim(client));
    claimed.then_some(()).ok_or(CloseReason::TooManyOfAddress)
}

fn address(stream: &Stream) -> Option<IpAddr> {
    let digest = stream.get_socket_digest()?;
    let address = digest.peer_addr()?.as_inet()?;
    Some(address.ip())
}

impl<H: Handler> Front<H> {
    /// Acquires a permit for an accepted connection, and serves the connection to its end.
    pub(crate) async fn serve_connection(&self, visit: &H::Visit, stream: Stream, shutdown: &ShutdownWatch) {
        let Some(place) = self.permits.acquire() else {
            return self.figures.record_close(CloseReason::TooMany);
        };
        let given_way = place.slot().map(|slot| slot.given_way());
        // Pinned once for both branches, so that this future contains it only once.
        let mut attended = pin!(self.serve_with_permit(visit, stream, place, shutdown));
        match given_way {
            None => attended.await,
            Some(given_way) => tokio::select! {
                biased;
                () = &mut attended => {}
                () = given_way => self.figures.record_close(CloseReason::GaveWay),
            },
        }
    }

    /// Serves a connection that has a permit, to the connection's end.
    async fn serve_with_permit(
        &self,
        visit: &H::Visit,
        stream: Stream,
        place: ConnectionPermit,
        shutdown: &ShutdownWatch,
    ) {
        let config = Arc::clone(&self.live.get().config);
        let closing = Closing {
            shutdown: shutdown.clone(),
            patience: FIRST_REQUEST_WAIT,
        };
        let opened = tokio::select! {
            biased;
            opened = self.open(stream, place, &config) => opened,
            () = closing.expired() => return,
        };
        match opened {
            Ok(connection) => self.serve_requests(visit, connection, &config, shutdown).await,
            Err(reason) => self.figures.record_close(reason),
        }
    }
}

#[async_trait]
impl<H: Handler> ServerApp for Front<H> {
    /// Serves the connection in its own task, because Pingora's task occupies 8 KiB for the state of a TLS handshake until the
    /// task ends.
    async fn process_new(self: &Arc<Self>, stream: Stream, shutdown: &ShutdownWatch) -> Option<Stream> {
        let visit = self.handler.on_connection();
        let (front, shutdown) = (Arc::clone(self), shutdown.clone());
        tokio::spawn(async move {
            front.serve_connection(&visit, stream, &shutdown).await;
        });
        None
    }

    async fn cleanup(&self) {
        self.handler.app().http_cleanup().await;
    }
}

/// A request over HTTP/1.1 whose head has been checked.
#[derive(Debug)]
pub(crate) struct CheckedRequest {
    /// The head, followed by the part of the body that arrived together with it.
    pub bytes: BytesMut,
    /// Whether this is the last request of its connection.
    pub is_last: bool,
}

impl CheckedRequest {
    /// Creates Pingora's session for the request over `stream`.
    pub(crate) fn session(self, stream: Stream) -> ServerSession {
        let mut session = ServerSession::new_http1(stream);
        session.set_pipelined_prefix(self.bytes);
        session.set_keepalive_reuses_remaining(self.is_last.then_some(0));
        session
    }
}

/// Answers the requests that the front has checked.
pub(crate) trait Handler: Send + Sync + 'static {
    /// The application that gets Pingora's sessions.
    type App: HttpServerApp + Send + Sync + 'static;
    /// The data that the handler stores for a connection while the connection is served.
    type Visit: Send + Sync + 'static;

    fn app(&self) -> &Arc<Self::App>;

    /// Called when a connection begins. Returns the handler's data for the connection.
    fn on_connection(&self) -> Self::Visit;

    /// Answers one request over HTTP/1.1. Returns the connection if it can carry another request; `None` otherwise.
    fn request<'a>(
        &'a self,
        _visit: &'a Self::Visit,
        arrived: CheckedRequest,
        over: Box<ClientConnection>,
        shutdown: &'a ShutdownWatch,
    ) -> impl Future<Output = Option<Box<ClientConnection>>> + Send {
        let answering = self.app().process_new_http(arrived.session(over), shutdown);
        async move {
            let (stream, _) = answering.await?.consume();
            stream.into_any().downcast::<ClientConnection>().ok()
        }
    }
}

/// The layers between an accepted socket and HTTP, such as TLS or the header of the PROXY protocol.
#[async_trait]
pub(crate) trait Transport: Send + Sync {
    /// Whether a connection from this peer begins with a header that names the client. If so, the connection is counted for that
    /// client and not for the peer. It is counted after [`Transport::open`] has returned.
    fn announces_client(&self, _peer: IpAddr) -> bool {
        false
    }

    /// Turns the socket into a stream of HTTP. The stream's socket digest contains the client's address. The caller limits the
    /// duration. If this function returns an error, the connection is closed without an answer.
    async fn open(&self, stream: Stream) -> io::Result<Stream>;
}

/// The time limits on a client for sending a request's body and for receiving the answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClientTimes {
    /// The limit on sending the body of a request, including its trailers.
    pub body: BodyTimeLimit,
    /// The minimum speed for receiving an answer.
    pub answer: MinimumSpeed,
}

impl ClientTimes {
    pub(crate) fn new(config: &GatewayConfig) -> Self {
        Self {
            body: config.bodies.time(),
            answer: config.answer_pace(),
        }
    }
}

/// The layers of a listener, in order from the socket.
#[derive(Debug)]
pub(crate) struct Layers {
    /// The peers whose connections begin with a header of the PROXY protocol. Other peers must not send one.
    pub announced_by: Vec<IpNet>,
    /// The listener's TLS; `None` for a listener without TLS.
    pub tls: Option<Arc<TlsListener>>,
}

#[async_trait]
impl Transport for Layers {
    fn announces_client(&self, peer: IpAddr) -> bool {
        let peer = peer.to_canonical();
        self.announced_by.iter().any(|network| network.contains(&peer))
    }

    async fn open(&self, mut stream: Stream) -> io::Result<Stream> {
        if peer(&stream).is_some_and(|peer| self.announces_client(peer))
            && let Some(client) = read_announced_client(&mut stream).await?
        {
            let digest = SocketDigest::from_raw_fd(stream.id());
            // The digest is new and has no address yet, so setting one cannot fail.
            let _ = digest.peer_addr.set(Some(Address::Inet(client)));
            stream.set_socket_digest(digest);
        }
        let Some(tls) = &self.tls else {
            return Ok(stream);
        };
        let socket = stream.into_any().downcast::<Socket>();
        let socket = socket.map_err(|_| io::Error::other("the connection is not a socket"))?;
        let encrypted = tls.accept(*socket).await;
        encrypted.map_or_else(
            |error| Err(io::Error::new(ErrorKind::InvalidData, error)),
            |one| Ok(Box::new(one) as _),
        )
    }
}

fn peer(stream: &Stream) -> Option<IpAddr> {
    let digest = stream.get_socket_digest()?;
    Some(digest.peer_addr()?.as_inet()?.ip())
}

/// Reads a header of the PROXY protocol without reading any byte after it. Returns the client's address; `None` if the header has
/// none.
async fn read_announced_client(stream: &mut Stream) -> io::Result<Option<SocketAddr>> {
    let mut header = Vec::new();
    loop {
        match proxy_protocol::read(&header).map_err(|error| io::Error::new(ErrorKind::InvalidData, error))? {
            ProxyHeaderProgress::Whole(client) => return Ok(client),
            ProxyHeaderProgress::Needs(more) => {
                let read = (&mut *stream).take(more as u64).read_to_end(&mut header).await?;
                if read < more {
                    return Err(ErrorKind::UnexpectedEof.into());
                }
            }
        }
    }
}
