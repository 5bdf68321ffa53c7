//! Reads a request to one of the doors whole, within limits.

use std::{
    net::{IpAddr, Ipv4Addr},
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Method, StatusCode, header, uri::Authority};
use ipnet::IpNet;
use pingora::{http::RequestHeader, protocols::http::ServerSession};

use super::{
    answer::Answer,
    ask::{self, Ask},
};
use crate::edges::clock;

/// How long a form may take to come in.
const FORM_WAIT: Duration = Duration::from_secs(30);

/// How requests come to a door.
#[derive(Clone, Debug)]
pub(crate) struct Entrance {
    /// Whether its listener speaks TLS.
    pub(crate) tls: bool,
    /// Proxies that may say that their clients' connections are encrypted.
    pub(crate) trusted: Vec<IpNet>,
    /// The largest form: of so much each connection may have in memory.
    pub(crate) form_bytes_max: usize,
}

/// The address at which the client of a request reaches a listener that speaks TLS or not, behind proxies that are trusted or
/// none; `None`: the request names no host.
pub(crate) fn base(head: &RequestHeader, peer: IpAddr, (tls, trusted): (bool, &[IpNet])) -> Option<String> {
    let encrypted = tls || is_forwarded_encrypted(peer, &head.headers, trusted);
    Some(ask::base(encrypted, host(head)?.as_str()))
}

/// Reads the request of a session.
///
/// # Errors
/// The answer to a request that is too large, too slow, or for no host.
pub(crate) async fn read(session: &mut ServerSession, entrance: &Entrance) -> Result<Ask, Box<Answer>> {
    let now = clock::instant();
    let body = match tokio::time::timeout(FORM_WAIT, body(session, entrance.form_bytes_max)).await {
        Ok(body) => body?,
        Err(_) => {
            return Err(refused(
                session,
                StatusCode::REQUEST_TIMEOUT,
                "the form did not come in within 30 seconds",
            ));
        }
    };
    let peer = session.client_addr().and_then(|address| address.as_inet());
    let peer = peer.map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |address| address.ip());
    let head = session.req_header();
    let Some(host) = host(head) else {
        return Err(refused(session, StatusCode::BAD_REQUEST, "the request names no host"));
    };
    let method = match &head.method {
        &Method::HEAD => Method::GET,
        other => other.clone(),
    };
    Ok(Ask {
        method,
        path: head.uri.path().to_owned(),
        query: head.uri.query().map(str::to_owned),
        host: host.as_str().to_owned(),
        encrypted: entrance.tls || is_forwarded_encrypted(peer, &head.headers, &entrance.trusted),
        headers: head.headers.clone(),
        body,
        peer,
        now,
    })
}

async fn body(session: &mut ServerSession, bytes_max: usize) -> Result<Bytes, Box<Answer>> {
    let mut body = BytesMut::new();
    loop {
        match session.read_request_body().await {
            Ok(Some(bytes)) if body.len() + bytes.len() <= bytes_max => body.extend_from_slice(&bytes),
            Ok(Some(_)) => {
                let why = format!("a form has at most {bytes_max} bytes here");
                return Err(refused(session, StatusCode::PAYLOAD_TOO_LARGE, &why));
            }
            Ok(None) => return Ok(body.freeze()),
            // Nobody is there to read the answer; the connection ends with it.
            Err(_) => {
                return Err(refused(
                    session,
                    StatusCode::BAD_REQUEST,
                    "the form did not come in whole",
                ));
            }
        }
    }
}

/// The rest of the body is not read, so the connection carries no further request.
fn refused(session: &mut ServerSession, status: StatusCode, why: &str) -> Box<Answer> {
    session.set_keepalive(None);
    Box::new(Answer::text(status, why))
}

fn host(head: &RequestHeader) -> Option<Authority> {
    let named = head.headers.get(header::HOST).and_then(|host| host.to_str().ok());
    let authority = head.uri.authority().cloned();
    authority.or_else(|| named?.parse().ok())
}

/// Whether a proxy that is trusted says that its client's connection is encrypted. Of several such fields the last one is the
/// nearest proxy's.
fn is_forwarded_encrypted(peer: IpAddr, headers: &HeaderMap, trusted: &[IpNet]) -> bool {
    let peer = peer.to_canonical();
    let said = headers.get_all("x-forwarded-proto").iter().next_back();
    trusted.iter().any(|network| network.contains(&peer)) && said.is_some_and(|said| said == "https")
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn only_a_trusted_proxy_says_that_a_connection_is_encrypted() {
        let trusted: Vec<IpNet> = vec!["10.0.0.0/8".parse().unwrap()];
        let (proxy, other) = ("10.1.2.3".parse().unwrap(), "192.0.2.1".parse().unwrap());
        let mut headers = HeaderMap::new();
        assert!(!is_forwarded_encrypted(proxy, &headers, &trusted));
        headers.append("x-forwarded-proto", HeaderValue::from_static("https"));
        assert!(is_forwarded_encrypted(proxy, &headers, &trusted));
        assert!(!is_forwarded_encrypted(other, &headers, &trusted));
        headers.append("x-forwarded-proto", HeaderValue::from_static("http"));
        assert!(!is_forwarded_encrypted(proxy, &headers, &trusted));
    }
}
