//! Reads a complete request to the console or the portal, within limits.

use std::{
    net::{IpAddr, Ipv4Addr},
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use http::{Method, StatusCode};
use pingora::protocols::http::ServerSession;

use super::{
    answer::PageResponse,
    ask::PageRequest,
    site::{Site, SiteAddress},
};
use crate::edges::clock;

/// The timeout for receiving a form.
const FORM_WAIT: Duration = Duration::from_secs(30);

/// How a listener receives the requests of the console or the portal.
#[derive(Clone, Debug)]
pub(crate) struct ListenerContext {
    /// The address at which browsers reach it.
    pub(crate) site: Site,
    /// The maximum size of a form, and so of what one connection may hold in memory.
    pub(crate) form_bytes_max: usize,
}

/// Reads the request of a session.
///
/// # Errors
/// The response to a request that is too large, too slow, or names no host.
pub(crate) async fn read(
    session: &mut ServerSession,
    entrance: &ListenerContext,
) -> Result<PageRequest, Box<PageResponse>> {
    let now = clock::instant();
    let body = match tokio::time::timeout(FORM_WAIT, read_body(session, entrance.form_bytes_max)).await {
        Ok(body) => body?,
        Err(_) => {
            return Err(refuse_and_close(
                session,
                StatusCode::REQUEST_TIMEOUT,
                "the form did not arrive within 30 seconds",
            ));
        }
    };
    let peer = session.client_addr().and_then(|address| address.as_inet());
    let peer = peer.map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |address| address.ip());
    let head = session.req_header();
    let Some(SiteAddress { host, encrypted }) = entrance.site.address_for(head, peer) else {
        return Err(refuse_and_close(
            session,
            StatusCode::BAD_REQUEST,
            "the request names no host",
        ));
    };
    let method = match &head.method {
        &Method::HEAD => Method::GET,
        other => other.clone(),
    };
    Ok(PageRequest {
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

async fn read_body(session: &mut ServerSession, bytes_max: usize) -> Result<Bytes, Box<PageResponse>> {
    let mut body = BytesMut::new();
    loop {
        match session.read_request_body().await {
            Ok(Some(bytes)) if body.len() + bytes.len() <= bytes_max => body.extend_from_slice(&bytes),
            Ok(Some(_)) => {
                let why = format!("a form is limited to {bytes_max} bytes here");
                return Err(refuse_and_close(session, StatusCode::PAYLOAD_TOO_LARGE, &why));
            }
            Ok(None) => return Ok(body.freeze()),
            // The client is gone; this response ends the connection.
            Err(_) => {
                return Err(refuse_and_close(
                    session,
                    StatusCode::BAD_REQUEST,
                    "the form arrived incomplete",
                ));
            }
        }
    }
}

/// Closes the connection afterwards, because the rest of the body is not read.
fn refuse_and_close(session: &mut ServerSession, status: StatusCode, why: &str) -> Box<PageResponse> {
    session.set_keepalive(None);
    Box::new(PageResponse::text(status, why))
}
