//! The front: accepts clients' connections, and reads and checks the heads of their requests.
//!
//! It runs before Pingora's parsers, at the gateway and at the public stability service. A connection needs a permit
//! ([`ConnectionPermit`]) and becomes a stream of HTTP ([`Transport`]). Its requests are read head by head, within limits ([`Arrival`]);
//! each head is checked (`domain/wire/http1/head.rs`) before anything else sees it. A [`Handler`] answers the requests.

pub(crate) mod connection;
pub(crate) mod head_budget;
pub(crate) mod head_reader;
pub(crate) mod http2;
pub(crate) mod layers;
pub(crate) mod permits;
pub(crate) mod tls;
mod unread;

use std::{io, net::IpAddr, pin::pin, sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::BytesMut;
use pingora::{
    apps::{HttpServerApp, ServerApp},
    protocols::{ALPN, Ssl, Stream, http::ServerSession},
    server::ShutdownWatch,
};

use crate::{
    config::{Config, GatewayConfig},
    domain::{
        faults::{BodyTimeLimit, MinimumSpeed},
        wire::http1::head::HeadLimits,
    },
    front::{
        connection::ClientConnection,
        head_budget::HeadBudget,
        head_reader::{Arrival, ArrivalLimits, Closing, ExpectedProtocol},
        http2::Http2Settings,
        permits::{ConnectionPermit, ConnectionPermits},
    },
    providers::CurrentConfig,
    telemetry::metrics::{CloseReason, ListenerFigures},
};

/// Bytes of a head that the gateway's own limit does not count (`gateway/request/head.rs`): method, version and line ends.
const UNCOUNTED_BYTES: usize = 64;

/// How long after the begin of the shutdown an accepted connection may still bring its first request, which its client is about
/// to send. A connection that has carried a request may be closed at any time.
pub(crate) const FIRST_REQUEST_WAIT: Duration = Duration::from_secs(3);

/// The application that a listening service passes connections to.
pub(crate) struct Front<H> {
    handler: H,
    live: Arc<CurrentConfig>,
    permits: Arc<ConnectionPermits>,
    heads: HeadBudget,
    transport: Arc<dyn Transport>,
    figures: ListenerFigures,
}

impl<H: Handler> Front<H> {
    /// A front for `handler`. A connection keeps the configuration that it began with.
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

    /// Turns the connection into a stream of HTTP, and counts its permit for its client.
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
        let over = |patience| {
            let told = closing.clone();
            Closing {
                shutdown: told,
                patience,
            }
            .expired()
        };
        let mut timer = pin!(tokio::time::sleep(limits.silence));
        let mut over_between = pin!(over(Duration::ZERO));
        for count in 1..=requests_max {
            let arrival = if count == 1 {
                let over_first = pin!(over(FIRST_REQUEST_WAIT));
                head_reader::next_request(&mut connection, spoken, limits, timer.as_mut(), over_first).await
            } else {
                head_reader::next_request(&mut connection, spoken, limits, timer.as_mut(), over_between.as_mut()).await
            };
            let bytes = match arrival {
                Ok(Arrival::Request(bytes)) => bytes,
                Ok(Arrival::Http2) => {
                    let settings = Http2Settings::new(config);
                    // Boxed, because few connections come here and the future of each would have the room for it.
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
    // A connection without an address, as over a unix socket, is not counted for any client.
    let claimed = client.is_none_or(|client| place.claim(client));
    claimed.then_some(()).ok_or(CloseReason::TooManyOfAddress)
}

fn address(stream: &Stream) -> Option<IpAddr> {
    let digest = stream.get_socket_digest()?;
    let address = digest.peer_addr()?.as_inet()?;
    Some(address.ip())
}

impl<H: Handler> Front<H> {
    /// Serves a connection from when it is accepted to its end.
    pub(crate) async fn serve_connection(&self, visit: &H::Visit, stream: Stream, shutdown: &ShutdownWatch) {
        let Some(place) = self.permits.acquire() else {
            return self.figures.record_close(CloseReason::TooMany);
        };
        let given_way = place.slot().map(|slot| slot.given_way());
        // Pinned once for both branches, so that this future has it only once.
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

    /// Serves a connection that has a permit to its end.
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
    /// Serves the connection in a task of its own: Pingora's task keeps 8 KiB for a TLS handshake's state as long as it runs.
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

/// A request whose head has been checked.
#[derive(Debug)]
pub(crate) struct CheckedRequest {
    /// The head, with the part of the body that arrived with it.
    pub bytes: BytesMut,
    /// It is the last request of its connection.
    pub is_last: bool,
}

impl CheckedRequest {
    /// Pingora's session for the request over `stream`.
    pub(crate) fn session(self, stream: Stream) -> ServerSession {
        let mut session = ServerSession::new_http1(stream);
        session.set_pipelined_prefix(self.bytes);
        session.set_keepalive_reuses_remaining(self.is_last.then_some(0));
        session
    }
}

/// Answers requests.
pub(crate) trait Handler: Send + Sync + 'static {
    /// The application that gets Pingora's sessions.
    type App: HttpServerApp + Send + Sync + 'static;
    /// What the handler holds of a connection while it is served.
    type Visit: Send + Sync + 'static;

    fn app(&self) -> &Arc<Self::App>;

    /// A connection begins.
    fn on_connection(&self) -> Self::Visit;

    /// Answers one request over HTTP/1.1; the connection comes back if it can carry another.
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

/// The layers between an accepted socket and HTTP, such as TLS or a header of the PROXY protocol.
#[async_trait]
pub(crate) trait Transport: Send + Sync {
    /// Whether connections from this peer begin by naming their client. The client is then counted instead of the peer, once
    /// [`Transport::open`] has returned.
    fn announces_client(&self, _peer: IpAddr) -> bool {
        false
    }

    /// Turns the socket into a stream of HTTP, whose socket digest has the client's address. The caller limits the time. An error
    /// closes the connection without an answer.
    async fn open(&self, stream: Stream) -> io::Result<Stream>;
}

/// How long a client may take for a request's body and for the answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClientTimes {
    /// For sending the body of a request, its trailers included.
    pub body: BodyTimeLimit,
    /// For receiving an answer.
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
