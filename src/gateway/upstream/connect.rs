//! Begins an attempt: waits for the pause that precedes the attempt, chooses the backend, edits the body for the provider, and
//! connects. If the provider's host has IPv4 and IPv6 addresses, both families are tried as RFC 8305 describes.

#[cfg(test)]
mod tests;

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use async_trait::async_trait;
use futures_util::future::{FutureExt, select_ok};
use pingora::{
    Error, ErrorType, OrErr, Result,
    connectors::l4::Connect,
    protocols::{
        ALPN, Digest, GetProxyDigest,
        l4::{socket::SocketAddr as PeerAddress, stream::Stream},
    },
    upstreams::peer::{HttpPeer, PeerOptions},
};
use pingora_proxy::Session;
use rand::RngExt;
use tokio::net::TcpStream;

use crate::{
    domain::faults::refusal::Refusal,
    edges::clock,
    gateway::{
        attempt::{
            Attempt, Verdict,
            attempts::ConnectionChoice,
            deadline::{self, AttemptLimits, Deadlines},
        },
        drain::Drain,
        forward::Forward,
        log_entry,
        parts::Gateway,
        reply,
        request::body::BodyFraming,
        upstream::{
            line_peer::{self, ChosenPeer},
            verdict::{self, AttemptEvent},
        },
    },
    providers::pools::{ProviderBackend, ProviderBackends},
};

/// The HTTP/2 window: the number of bytes of an answer that can wait for a slow client. Pingora's default is 8 MiB. 256 KiB are
/// enough for 20 Mbit/s at a round trip of 100 ms, more than any model produces.
const HTTP2_WINDOW_BYTES: u32 = 256 * 1024;

/// Waits for the pause that precedes this attempt. Returns earlier if the drain ends during the pause.
pub(crate) async fn pause(forward: &mut Forward, drain: &Drain) {
    let pause = forward.attempts.take_pause();
    if !pause.is_zero() {
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = drain.expired() => {}
        }
    }
}

/// Begins an attempt. Returns the peer to which the request is sent.
pub(crate) fn choose_peer(gateway: &Gateway, session: &Session, forward: &mut Forward) -> Result<ChosenPeer> {
    forward.attempt = Attempt::default();
    if gateway.drain.is_expired() {
        let context = "the process stops and begins no attempt";
        return Err(forward.refuse(Refusal::Stopping, ErrorType::Custom("stopping"), context));
    }
    let place = forward
        .attempts
        .next_backend(rand::rng().random(), clock::instant())
        .cloned();
    forward.begin_attempt();
    if let Some(reason) = forward.attempts.take_reason() {
        let metrics = gateway.metrics();
        let provider = metrics.provider_label(&forward.provider().name);
        metrics.providers.retries.with_labels([provider, reason.into()]).inc();
    }
    let Some(place) = place else {
        let context = "the provider's host is not resolved";
        let error = forward.refuse(Refusal::ProviderUnreachable, ErrorType::ConnectNoRoute, context);
        return Err(error.into_up());
    };
    if let Err(refusal) = forward.edit_body(&session.req_header().headers) {
        let context = "the provider cannot take the body";
        return Err(forward.refuse(refusal, ErrorType::InternalError, context));
    }
    let timeouts = &forward.request.live.config.upstream;
    let connect = forward.provider().timeouts.connect.unwrap_or(timeouts.connect);
    let indicated = place.origin.https.then(|| place.origin.host.clone());
    let mut peer = HttpPeer::new(place.first, place.origin.https, indicated.unwrap_or_default());
    let connection = forward.attempts.take_connection();
    if timeouts.http2 && place.origin.https && connection != ConnectionChoice::NewOverHttp1 {
        offer_http2(&mut peer.options);
    } else {
        peer.options.alpn = ALPN::H1;
    }
    let places = Arc::clone(&forward.attempts.endpoint().backends);
    peer.options.custom_l4 = Some(Arc::new(Connector::new(connect, place, places, gateway.drain.clone())));
    peer.options.total_connection_timeout = Some(connect);
    // The deadline limits the time of reads, because Pingora's own timeout would register a timer for every chunk.
    peer.options.write_timeout = Some(limits(forward).idle);
    peer.options.idle_timeout = Some(timeouts.pool_idle);
    if connection != ConnectionChoice::Any || !forward.can_resend() {
        // The request would be lost on a stale connection from the pool, so this attempt opens a new one.
        line_peer::isolate(&mut peer);
    }
    let line = line_peer::turn(session, forward, (&peer, connection));
    Ok(ChosenPeer {
        post: Box::new(peer),
        line: line.map(Box::new),
    })
}

/// Offers HTTP/2 to the provider. A connection carries one request at a time, because a time limit shuts down the connection's
/// socket ([`deadline`]) and must not end another request.
fn offer_http2(options: &mut PeerOptions) {
    options.alpn = ALPN::H2H1;
    options.max_h2_streams = 1;
    options.h2_stream_window_size = Some(HTTP2_WINDOW_BYTES);
    options.h2_connection_window_size = Some(HTTP2_WINDOW_BYTES);
}

fn limits(forward: &Forward) -> AttemptLimits {
    let general = &forward.request.live.config.upstream;
    let own = &forward.provider().timeouts;
    let first_byte = if forward.request.stream {
        own.first_byte.unwrap_or(general.first_byte)
    } else {
        own.first_byte_unary.unwrap_or(general.first_byte_unary)
    };
    AttemptLimits {
        first_byte,
        idle: own.idle.unwrap_or(general.idle),
        total: own.total.unwrap_or(general.total),
        error_body: general.error_body,
    }
}

/// Called when the connection is established. Starts the time limits, including the one for a disconnected client.
pub(crate) fn on_connected(session: &Session, forward: &mut Forward, digest: Option<&Digest>, deadlines: &Deadlines) {
    forward.attempts.on_connected();
    let replay_bytes = match &forward.body {
        Some(body) if body.form != BodyFraming::Sized && session.get_retry_buffer().is_some() => body.received,
        _ => 0,
    };
    let (limits, presence) = (limits(forward), forward.client.presence.clone());
    let deadline =
        deadline::socket_handle(digest).map(|handle| deadlines.begin(handle, limits, presence, clock::instant()));
    forward.attempt.on_connected(deadline, replay_bytes);
}

/// Handles a failed connect and decides whether another attempt follows. Returns Pingora's error, which contains the decision.
pub(crate) fn on_connect_failed(
    gateway: &Gateway,
    session: &Session,
    forward: &mut Forward,
    mut error: Box<Error>,
) -> Box<Error> {
    if gateway.drain.is_expired() {
        forward.attempt.verdict = Verdict::Refuse(Refusal::Stopping);
        error.set_retry(false);
        return error;
    }
    let place = forward.attempts.backend().map(|place| place.address);
    let provider = forward.provider().name.clone();
    let has_begun = reply::has_begun(session);
    let again = *verdict::decide(gateway.metrics(), forward, has_begun, AttemptEvent::ConnectFailed) == Verdict::Retry;
    if again {
        log_entry::log_failed_connect(&forward.ticket.request_id, &provider, place, error.etype().as_str());
    }
    error.set_retry(again);
    error
}

/// The time for which weir tries only the first address (RFC 8305 section 8, "Connection Attempt Delay").
pub(crate) const ATTEMPT_DELAY: Duration = Duration::from_millis(250);

/// Connects to one backend, and creates a second handle on the socket for [`deadline`].
///
/// The address family that the system prefers is tried first. If the connect fails or takes longer than [`ATTEMPT_DELAY`], the
/// other family is tried as well, and the first established connection is used. The family that succeeds is stored for the
/// backend ([`ProviderBackends::on_family_answered`]), so that later requests do not wait again. One attempt runs at most two
/// connects, within one connect timeout.
#[derive(Debug)]
pub(crate) struct Connector {
    /// The connect timeout, for both address families together.
    timeout: Duration,
    place: ProviderBackend,
    places: Arc<ProviderBackends>,
    /// Aborts the connect when the drain ends.
    drain: Drain,
}

impl Connector {
    /// Creates a connector for one attempt at the backend `place`, which is one of `places`.
    pub(crate) fn new(timeout: Duration, place: ProviderBackend, places: Arc<ProviderBackends>, drain: Drain) -> Self {
        Self {
            timeout,
            place,
            places,
            drain,
        }
    }

    async fn race(&self, first: SocketAddr) -> io::Result<TcpStream> {
        let Some(second) = self.places.second(&self.place) else {
            return TcpStream::connect(first).await;
        };
        let mut at_first = TcpStream::connect(first).boxed();
        let alone = tokio::time::timeout(ATTEMPT_DELAY, &mut at_first).await;
        let (connected, winner) = match alone {
            Ok(Ok(connected)) => return Ok(connected),
            // If both families fail, the error of the preferred family is returned.
            Ok(Err(error)) => (TcpStream::connect(second).await.map_err(|_| error)?, second),
            Err(_) => {
                let at_first = at_first.map(|done| done.map(|connected| (connected, first)));
                let at_second = TcpStream::connect(second).map(|done| done.map(|connected| (connected, second)));
                select_ok([at_first.boxed(), at_second.boxed()]).await?.0
            }
        };
        self.places.on_family_answered(&self.place, winner, clock::instant());
        Ok(connected)
    }
}

#[async_trait]
impl Connect for Connector {
    async fn connect(&self, first: &PeerAddress) -> Result<Stream> {
        let first = first
            .as_inet()
            .ok_or_else(|| Error::explain(ErrorType::ConnectError, "the peer is not an IP address"))?;
        let connected = tokio::select! {
            connected = tokio::time::timeout(self.timeout, self.race(*first)) => connected,
            () = self.drain.expired() => return Error::e_explain(ErrorType::ConnectError, "the process stops"),
        };
        let socket = connected
            .or_err(ErrorType::ConnectTimedout, "connecting to the provider")?
            .or_err(ErrorType::ConnectRefused, "connecting to the provider")?;
        let (socket, digest) = deadline::with_handle(socket)?;
        let mut stream = Stream::from(socket);
        stream.set_proxy_digest(digest);
        Ok(stream)
    }
}
