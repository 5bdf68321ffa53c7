//! The front: accepts clients' connections, and lets in what may be let in.
//!
//! It stands before Pingora's parsers, at the gateway and at the public stability service. A connection needs a place
//! ([`places`]), becomes a stream of HTTP ([`transport`]), and is read head by head within limits ([`arrival`]), each
//! head checked (`domain/wire/http1/head.rs`) before anything else sees it. What answers is behind it ([`handler`]).

pub(crate) mod arrival;
pub(crate) mod client_times;
mod farewell;
pub(crate) mod guarded;
pub(crate) mod handler;
pub(crate) mod head_budget;
pub(crate) mod http2;
pub(crate) mod layers;
pub(crate) mod places;
pub(crate) mod tls;
pub(crate) mod transport;
mod unread;

use std::{net::IpAddr, pin::pin, sync::Arc, time::Duration};

use async_trait::async_trait;
use pingora::{
    apps::{HttpServerApp, ServerApp},
    protocols::{ALPN, Ssl, Stream},
    server::ShutdownWatch,
};

use crate::{
    config::Config,
    domain::wire::http1::head::HeadLimits,
    front::{
        arrival::{Arrival, ArrivalLimits, Closing, Spoken},
        client_times::ClientTimes,
        guarded::Guarded,
        handler::{Arrived, Handler},
        head_budget::HeadBudget,
        http2::Http2Settings,
        places::{Place, Places},
        transport::Transport,
    },
    providers::live::LiveCell,
    telemetry::metrics::{CloseReason, ListenerFigures},
};

/// What a head may have beyond what the gateway counts of it (`gateway/request/head.rs`): the words of the request line and
/// the line ends.
const UNCOUNTED_BYTES: usize = 64;

/// How long a connection that was accepted when weir still took new ones may take to bring its first request. Who has just
/// connected is about to ask; who has been answered before may be told at any time that the connection has ended.
pub(crate) const FIRST_REQUEST_WAIT: Duration = Duration::from_secs(3);

/// The application that a listening service passes connections to.
pub(crate) struct Front<H> {
    handler: H,
    live: Arc<LiveCell>,
    places: Arc<Places>,
    heads: HeadBudget,
    transport: Arc<dyn Transport>,
    figures: ListenerFigures,
}

impl<H: Handler> Front<H> {
    /// In front of `handler`. A connection keeps the configuration that it began with.
    pub(crate) fn new(
        handler: H,
        live: Arc<LiveCell>,
        (places, heads): (Arc<Places>, HeadBudget),
        transport: Arc<dyn Transport>,
        figures: ListenerFigures,
    ) -> Self {
        Self {
            handler,
            live,
            places,
            heads,
            transport,
            figures,
        }
    }

    /// Makes the connection a stream of HTTP, whose place is claimed for its client.
    async fn open(&self, stream: Stream, mut place: Place, config: &Config) -> Result<Box<Guarded>, CloseReason> {
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
        let guarded = Guarded::new(stream, (Some(place), head), times, self.figures.clone());
        Ok(Box::new(guarded))
    }

    async fn serve(&self, visit: &H::Visit, mut connection: Box<Guarded>, config: &Config, closing: &ShutdownWatch) {
        let mut spoken = match connection.selected_alpn_proto() {
            Some(ALPN::H2) => Spoken::Http2,
            _ if connection.get_ssl_digest().is_some() => Spoken::Http1,
            _ => Spoken::Either,
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
            Closing { told, patience }.over()
        };
        let mut timer = pin!(tokio::time::sleep(limits.silence));
        let mut over_between = pin!(over(Duration::ZERO));
        for count in 1..=requests_max {
            let arrival = if count == 1 {
                let over_first = pin!(over(FIRST_REQUEST_WAIT));
                arrival::next(&mut connection, spoken, limits, timer.as_mut(), over_first).await
            } else {
                arrival::next(&mut connection, spoken, limits, timer.as_mut(), over_between.as_mut()).await
            };
            let bytes = match arrival {
                Ok(Arrival::Request(bytes)) => bytes,
                Ok(Arrival::Http2) => {
                    let settings = Http2Settings::new(config);
                    // Boxed, like all that few connections come to: it would be room in the future of each of them.
                    let served = http2::serve(self.handler.app(), connection, settings, closing.clone());
                    return Box::pin(served).await;
                }
                Ok(Arrival::Nothing) => return,
                Err(CloseReason::Silent) if count > 1 => return self.figures.closed(CloseReason::Idle),
                Err(reason) => {
                    self.figures.closed(reason);
                    return Box::pin(farewell::say(&mut connection, reason)).await;
                }
            };
            let is_last = count == requests_max;
            if is_last {
                self.figures.closed(CloseReason::Requests);
            }
            let arrived = Arrived { bytes, is_last };
            match self.handler.request(visit, arrived, connection, closing).await {
                Some(back) => {
                    if let Some(slot) = back.slot() {
                        slot.has_answered();
                    }
                    connection = back;
                }
                None => break,
            }
            spoken = Spoken::Http1;
            limits.silence = config.gateway.keepalive;
        }
    }
}

fn claim(place: &mut Place, client: Option<IpAddr>) -> Result<(), CloseReason> {
    // A connection without an address, as over a unix socket, has no client to be counted for.
    let claimed = client.is_none_or(|client| place.claim(client));
    claimed.then_some(()).ok_or(CloseReason::TooManyOfAddress)
}

fn address(stream: &Stream) -> Option<IpAddr> {
    let digest = stream.get_socket_digest()?;
    let address = digest.peer_addr()?.as_inet()?;
    Some(address.ip())
}

impl<H: Handler> Front<H> {
    /// A connection from when it is accepted to its end.
    pub(crate) async fn keep(&self, visit: &H::Visit, stream: Stream, shutdown: &ShutdownWatch) {
        let Some(place) = self.places.take() else {
            return self.figures.closed(CloseReason::TooMany);
        };
        let given_way = place.slot().map(|slot| slot.given_way());
        // In one place of this future, whichever way it is waited for.
        let mut attended = pin!(self.attend(visit, stream, place, shutdown));
        match given_way {
            None => attended.await,
            Some(given_way) => tokio::select! {
                biased;
                () = &mut attended => {}
                () = given_way => self.figures.closed(CloseReason::GaveWay),
            },
        }
    }

    /// A connection from its first byte to its end.
    async fn attend(&self, visit: &H::Visit, stream: Stream, place: Place, shutdown: &ShutdownWatch) {
        let config = Arc::clone(&self.live.get().config);
        let closing = Closing {
            told: shutdown.clone(),
            patience: FIRST_REQUEST_WAIT,
        };
        let opened = tokio::select! {
            biased;
            opened = self.open(stream, place, &config) => opened,
            () = closing.over() => return,
        };
        match opened {
            Ok(connection) => self.serve(visit, connection, &config, shutdown).await,
            Err(reason) => self.figures.closed(reason),
        }
    }
}

#[async_trait]
impl<H: Handler> ServerApp for Front<H> {
    /// Serves the connection in a task of its own: Pingora's has room for the state of a TLS handshake, 8 KiB, for as long as it
    /// runs.
    async fn process_new(self: &Arc<Self>, stream: Stream, shutdown: &ShutdownWatch) -> Option<Stream> {
        let visit = self.handler.enter();
        let (front, shutdown) = (Arc::clone(self), shutdown.clone());
        tokio::spawn(async move {
            front.keep(&visit, stream, &shutdown).await;
        });
        None
    }

    async fn cleanup(&self) {
        self.handler.app().http_cleanup().await;
    }
}
