//! The peer of a client's connection: its address, its client, and its disconnect.

use std::net::{IpAddr, Ipv4Addr};

use ipnet::IpNet;
use pingora::protocols::http::ServerSession;
use pingora_proxy::Session;

use crate::edges::limiter::client::ClientAddress;

/// The peer's address; unspecified if unknown.
pub(crate) fn peer_address(session: &Session) -> IpAddr {
    let peer = session.client_addr().and_then(|address| address.as_inet());
    peer.map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |address| address.ip())
}

/// The client as in [`client`]; `None` if a trusted proxy has named none.
pub(crate) fn known_client(session: &Session, trusted: &[IpNet]) -> Option<ClientAddress> {
    ClientAddress::single_from_headers(peer_address(session), &session.req_header().headers, trusted)
}

/// The client: the peer itself, or the one that a `trusted` proxy reports in `X-Forwarded-For`.
pub(crate) fn client(session: &Session, trusted: &[IpNet]) -> ClientAddress {
    ClientAddress::from_headers(peer_address(session), &session.req_header().headers, trusted)
}

/// Returns when the client has disconnected. Never returns while the end of an HTTP/1.1 body is unread, because a
/// disconnect cannot be seen then.
pub(crate) async fn wait_for_disconnect(session: &mut Session) {
    let body_is_done = session.is_body_done();
    match &mut *session.downstream_session {
        ServerSession::H2(stream) => {
            let _ = stream.idle().await;
        }
        http1 if body_is_done => {
            // Ends only with an error: the client has closed, or sent data behind its request.
            while http1.read_body_or_idle(true).await.is_ok() {}
        }
        _ => std::future::pending().await,
    }
}
