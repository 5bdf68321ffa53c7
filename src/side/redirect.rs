//! The plain listener whose every answer sends the client to the one with TLS.

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
    front::{handler::Handler, tls::listener::Listener},
    side::service::Bound,
};

/// HTTPS' own port, which a URL does not name.
const HTTPS_PORT: u16 = 443;

/// Sends clients to the same place at the listener with TLS.
pub(crate) struct RedirectHandler {
    app: Arc<RedirectApp>,
}

impl RedirectHandler {
    /// To the listener `tls`, which is bound where `bound` says. It takes hosts for which that one has a certificate: no
    /// other host is ever named to a client.
    pub(crate) fn new(tls: Arc<Listener>, bound: watch::Receiver<Bound>) -> Self {
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

    fn enter(&self) {}
}

/// Answers Pingora's sessions.
pub(crate) struct RedirectApp {
    tls: Arc<Listener>,
    bound: watch::Receiver<Bound>,
}

#[async_trait]
impl HttpServerApp for RedirectApp {
    // A connection that fails is its client's affair and says nothing about weir: no error is looked at.
    async fn process_new_http(
        self: &Arc<Self>,
        mut session: ServerSession,
        _shutdown: &ShutdownWatch,
    ) -> Option<ReusedHttpStream> {
        if session.read_request().await.ok()? {
            // The request's body is not read, so the connection carries no other.
            session.set_keepalive(None);
            let target = self.target(session.req_header());
            write(&mut session, target).await.ok()?;
            session.finish().await.ok()?;
        }
        None
    }
}

impl RedirectApp {
    /// The same URL at the listener with TLS; `None` without a certificate for its host.
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
            Bound::Tcp(address) if address.port() != HTTPS_PORT => format!(":{}", address.port()),
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
            "Use HTTPS, and a host that the certificate is good for.\n",
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
