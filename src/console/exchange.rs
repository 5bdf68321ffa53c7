//! Reads a request to one of the doors whole, within limits.

use std::{
    net::{IpAddr, Ipv4Addr},
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use http::{Method, StatusCode};
use pingora::protocols::http::ServerSession;

use super::{
    answer::Answer,
    ask::Ask,
    site::{Address, Site},
};
use crate::edges::clock;

/// How long a form may take to come in.
const FORM_WAIT: Duration = Duration::from_secs(30);

/// How requests come to a door.
#[derive(Clone, Debug)]
pub(crate) struct Entrance {
    /// Where browsers reach it.
    pub(crate) site: Site,
    /// The largest form: of so much each connection may have in memory.
    pub(crate) form_bytes_max: usize,
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
    let Some(Address { host, encrypted }) = entrance.site.reached(head, peer) else {
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
        host,
        encrypted,
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
