//! A listener for plain HTTP that redirects every request to the gateway's listener with TLS.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use http::{HeaderValue, Method, StatusCode, header, uri::Authority};
use pingora::{
    Result,
    apps::{HttpServerApp, ReusedHttpStream},
    http::{RequestHeader, ResponseHeader},
    protocols::http::{HttpTask, ServerSession},
    server::ShutdownWatch,
};
use tokio::sync::watch;

use crate::{
    front::{Handler, tls::TlsListener},
    side::service::BoundAddress,
};

/// The default port of HTTPS, which is left out in URLs.
const HTTPS_PORT: u16 = 443;

/// Redirects clients to the same URL at the listener with TLS.
pub(crate) struct RedirectHandler {
    app: Arc<RedirectApp>,
}

impl RedirectHandler {
    /// Creates the handler. It redirects to the listener `tls`, whose address is `bound`. It redirects only to hosts that the
    /// listener's certificates cover, so that no client can be led elsewhere.
    pub(crate) fn new(tls: Arc<TlsListener>, bound: watch::Receiver<BoundAddress>) -> Self {
        Self {
            app: Arc::new(RedirectApp { tls, bound }),
        }
    }
}

impl Handler for RedirectHandler {
    type App = RedirectApp;
    type Visit = ();

    fn app(&self) -> &Arc<RedirectApp> {
        &self.app
    }

    fn on_connection(&self) {}
}

/// Answers the requests that Pingora has read.
pub(crate) struct RedirectApp {
    tls: Arc<TlsListener>,
    bound: watch::Receiver<BoundAddress>,
}

#[async_trait]
impl HttpServerApp for RedirectApp {
    // Errors of a connection are ignored, because the client notices them and they say nothing about weir.
    async fn process_new_http(
        self: &Arc<Self>,
        mut session: ServerSession,
        _shutdown: &ShutdownWatch,
    ) -> Option<ReusedHttpStream> {
        if session.read_request().await.ok()? {
            // The connection cannot be reused, because the request's body is not read.
            session.set_keepalive(None);
            let target = self.target(session.req_header());
            write(&mut session, target).await.ok()?;
            session.finish().await.ok()?;
        }
        None
    }
}

impl RedirectApp {
    /// Returns the URL to redirect to. `None` if no certificate covers its host.
    fn target(&self, head: &RequestHeader) -> Option<HeaderValue> {
        let named = head.headers.get(header::HOST).and_then(|host| host.to_str().ok());
        let authority = head
            .uri
            .authority()
            .cloned()
            .or_else(|| named?.parse::<Authority>().ok())?;
        let host = authority.host();
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        let port = match &*self.bound.borrow() {
            BoundAddress::Tcp(address) if address.port() != HTTPS_PORT => format!(":{}", address.port()),
            _ => String::new(),
        };
        let path = head.uri.path_and_query().map_or("/", |path| path.as_str());
        let url = self.tls.covers(bare).then(|| format!("https://{host}{port}{path}"))?;
        HeaderValue::from_str(&url).ok()
    }
}

async fn write(session: &mut ServerSession, target: Option<HeaderValue>) -> Result<()> {
    let (status, text) = match target {
        Some(_) => (StatusCode::PERMANENT_REDIRECT, "Use HTTPS.\n"),
        None => (
            StatusCode::MISDIRECTED_REQUEST,
            "Use HTTPS, and a host that the certificate covers.\n",
        ),
    };
    let mut head = ResponseHeader::build(status, Some(3))?;
    head.insert_header(header::CONTENT_TYPE, "text/plain")?;
    head.insert_header(header::CONTENT_LENGTH, text.len())?;
    if let Some(target) = target {
        head.insert_header(header::LOCATION, target)?;
    }
    let is_head = session.req_header().method == Method::HEAD;
    let mut tasks = vec![HttpTask::Header(Box::new(head), is_head)];
    if !is_head {
        tasks.push(HttpTask::Body(Some(Bytes::from_static(text.as_bytes())), true));
    }
    session.response_duplex_vec(tasks).await?;
    Ok(())
}
