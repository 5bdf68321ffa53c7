//! Identifies the peer of a client's connection.

use std::net::{IpAddr, Ipv4Addr};

use ipnet::IpNet;
use pingora_proxy::Session;

use crate::edges::limiter::client::Client;

/// The peer's address; unspecified if unknown.
pub(crate) fn address(session: &Session) -> IpAddr {
    let peer = session.client_addr().and_then(|address| address.as_inet());
    peer.map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |address| address.ip())
}

/// The same; `None` if a trusted proxy has named nobody.
pub(crate) fn client_alone(session: &Session, trusted: &[IpNet]) -> Option<Client> {
    Client::alone(address(session), &session.req_header().headers, trusted)
}

/// The client: the peer itself, or the one that a `trusted` proxy reports in `X-Forwarded-For`.
pub(crate) fn client(session: &Session, trusted: &[IpNet]) -> Client {
    Client::of(address(session), &session.req_header().headers, trusted)
}
