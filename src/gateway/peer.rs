//! Who is at the other end of a client's connection.

use std::net::{IpAddr, Ipv4Addr};

use ipnet::IpNet;
use pingora_proxy::Session;

use crate::limiter::client::Client;

/// The address at the other end. Unspecified if it is not known.
pub fn address(session: &Session) -> IpAddr {
    let peer = session.client_addr().and_then(|address| address.as_inet());
    peer.map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |address| address.ip())
}

/// Who asks: the peer, or whom it speaks for if it is one of the `trusted` proxies.
pub fn client(session: &Session, trusted: &[IpNet]) -> Client {
    Client::of(address(session), &session.req_header().headers, trusted)
}
