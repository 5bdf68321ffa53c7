//! Sends a request of a client's socket to its provider over a WebSocket, if the provider's file and this node's limits allow
//! that. Pingora treats the WebSocket as a new connection over HTTP/1.1.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderName, header};
use parking_lot::Mutex;
use pingora::{
    Error, ErrorType, Result,
    connectors::l4::Connect,
    protocols::{
        ALPN,
        l4::{socket::SocketAddr as PeerAddress, stream::Stream},
    },
    upstreams::peer::{HttpPeer, Scheme},
};
use pingora_proxy::Session;

use crate::{
    domain::{
        keys::forwarding,
        rules::{edit_head, edit_query},
        wire::responses_socket::provider_frame::CreateFrame,
    },
    gateway::{
        attempt::attempts::ConnectionChoice,
        forward::Forward,
        lines::{LineAccess, LinePlace, LineRequest, LineTimes},
        turn_link::{TurnLink, turn_link},
    },
};

/// The maximum length in bytes of a body that is sent over a WebSocket. A larger one is sent by POST, because providers refuse
/// large messages.
const BODY_BYTES_MAX: usize = 8 * 1024 * 1024;

/// The peer of an attempt and, if the request can be sent over a WebSocket, the request in the form for a WebSocket.
pub(crate) struct ChosenPeer {
    /// The peer to which the request is sent by POST.
    pub post: Box<HttpPeer>,
    /// The request in the form for a WebSocket. If a WebSocket is free or can be opened, the request is sent over that WebSocket
    /// and not by POST. `None` if the request has to be sent by POST.
    pub line: Option<Box<SocketTurn>>,
}

/// A request on a client's socket that can be sent to its provider over a WebSocket.
pub(crate) struct SocketTurn {
    link: Arc<TurnLink>,
    request: LineRequest,
}

/// Returns the peer to which Pingora connects. If the request is sent over a new WebSocket, waits until it is open.
pub(crate) async fn connect(chosen: ChosenPeer) -> Result<Box<HttpPeer>> {
    let ChosenPeer { post, line } = chosen;
    Ok(match line {
        None => post,
        // Boxed: otherwise the future of every request would reserve memory for this one.
        Some(turn) => Box::pin(connect_over_line(post, *turn)).await,
    })
}

async fn connect_over_line(post: Box<HttpPeer>, turn: SocketTurn) -> Box<HttpPeer> {
    let SocketTurn { link, request } = turn;
    let Some(lines) = link.lines() else { return post };
    match lines.carry(&request).await {
        LineAccess::Post => post,
        LineAccess::Carried(stream, progress) => {
            link.set_line_progress(Some(progress));
            ready_peer(*post, Ok(stream))
        }
        LineAccess::Refused(stream) => ready_peer(*post, Ok(stream)),
        LineAccess::Failed(error) => ready_peer(*post, Err(error)),
    }
}

/// Returns the request in the form for a WebSocket; `None` if it has to be sent by POST. `connection` is the kind of connection
/// that the attempt is allowed to use.
pub(super) fn turn(
    session: &Session,
    forward: &Forward,
    (post, connection): (&HttpPeer, ConnectionChoice),
) -> Option<SocketTurn> {
    let link = turn_link(session)?;
    // Clears the progress of an earlier attempt.
    link.set_line_progress(None);
    if connection != ConnectionChoice::Any {
        return None;
    }
    let (config, lines) = (&forward.request.live.config, link.lines()?);
    let (endpoint, backend) = (forward.attempts.endpoint(), forward.attempts.backend()?);
    let is_served = endpoint.translation.is_none() && endpoint.provider.endpoints.has_websocket(endpoint.operation);
    let body = &forward.body.as_ref()?.bytes;
    let lines_max = config.sockets.provider_lines_max;
    if !is_served || !forward.request.stream || lines_max == 0 || body.len() > BODY_BYTES_MAX {
        return None;
    }
    let place = LinePlace {
        address: backend.address,
        host: backend.origin.authority(),
    };
    if !lines.admits(&place, body.len()) {
        return None;
    }
    let mut peer = post.clone();
    peer.options.alpn = ALPN::H1;
    let request = LineRequest {
        peer,
        place,
        provider: endpoint.provider.name.clone(),
        head: handshake_head(forward)?,
        frame: CreateFrame::from_body(body)?,
        continuation: link.continuation(body),
        body_bytes: body.len(),
        lane: link.lane(),
        lines_max,
        times: LineTimes {
            open: endpoint.provider.timeouts.connect.unwrap_or(config.upstream.connect),
            idle: config.sockets.provider_idle,
            ping: config.sockets.ping,
        },
    };
    Some(SocketTurn {
        link: Arc::clone(link),
        request,
    })
}

/// Returns the request line and the headers of a handshake, without the headers of the WebSocket protocol. The result contains
/// the headers from the provider's file and the credential, but no header of the client. Returns `None` if the provider's target
/// is not valid.
fn handshake_head(forward: &Forward) -> Option<Bytes> {
    let (provider, endpoint) = (forward.provider(), forward.attempts.endpoint());
    let query = edit_query(&provider.query, None);
    let target = endpoint.target.with_query(query.as_deref()).ok()?;
    let mut headers = HeaderMap::new();
    edit_head(&provider.headers, &mut headers);
    let is_own = |name: &HeaderName| {
        forwarding::is_withheld_header(name.as_str())
            || [header::HOST, header::CONTENT_LENGTH, header::CONTENT_TYPE].contains(name)
    };
    let own: Vec<HeaderName> = headers.keys().filter(|name| is_own(name)).cloned().collect();
    for name in own {
        headers.remove(name);
    }
    headers.insert(header::HOST, forward.attempts.backend()?.origin.host_header().clone());
    let credential = &forward.attempts.credential().credential;
    headers.insert(provider.auth.header.clone(), credential.header.clone());
    let mut head = BytesMut::from(format!("GET {target} HTTP/1.1\r\n").as_bytes());
    for (name, value) in &headers {
        for part in [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"] {
            head.extend_from_slice(part);
        }
    }
    Some(head.freeze())
}

/// Restricts the peer's connection to this request.
pub(super) fn isolate(peer: &mut HttpPeer) {
    static OWN_GROUP: AtomicU64 = AtomicU64::new(1);
    peer.group_key = OWN_GROUP.fetch_add(1, Ordering::Relaxed);
    peer.options.idle_timeout = Some(Duration::ZERO);
}

/// Returns a peer whose connection is already established, or has failed. If the connection uses TLS, the TLS session is inside
/// the connection.
fn ready_peer(mut peer: HttpPeer, connection: Result<Stream>) -> Box<HttpPeer> {
    peer.scheme = Scheme::HTTP;
    peer.sni = String::new();
    peer.options.alpn = ALPN::H1;
    peer.options.custom_l4 = Some(Arc::new(ReadyConnection(Mutex::new(Some(connection)))));
    isolate(&mut peer);
    Box::new(peer)
}

/// A connector for Pingora whose connection is already established, or has failed.
#[derive(Debug)]
struct ReadyConnection(Mutex<Option<Result<Stream>>>);

#[async_trait]
impl Connect for ReadyConnection {
    async fn connect(&self, _address: &PeerAddress) -> Result<Stream> {
        let ready = self.0.lock().take();
        ready.unwrap_or_else(|| Error::e_explain(ErrorType::ConnectError, "the connection was used already"))
    }
}
