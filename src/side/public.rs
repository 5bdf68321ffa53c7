//! Serves the pages of the public stability service on a listener of their own.

use std::{
    net::{IpAddr, Ipv4Addr},
    sync::Arc,
};

use async_trait::async_trait;
use http::{Method, header};
use pingora::{
    Result,
    apps::{HttpServerApp, ReusedHttpStream},
    http::ResponseHeader,
    protocols::http::{HttpTask, ServerSession},
    server::ShutdownWatch,
};

use crate::{
    edges::clock,
    front::Handler,
    stability::public::{PublicRequest, PublicResponse, PublicService},
    store::time::StoreTime,
};

/// Serves connections to the listener of the public stability service. Other paths than the service's get 404, in the service's
/// format.
pub(crate) struct PublicHandler {
    app: Arc<PublicApp>,
}

impl PublicHandler {
    /// Creates the handler of `public`, which all listeners share.
    pub(crate) fn new(public: Arc<PublicService>, time: Arc<StoreTime>) -> Self {
        Self {
            app: Arc::new(PublicApp { public, time }),
        }
    }
}

impl Handler for PublicHandler {
    type App = PublicApp;
    type Visit = ();

    fn app(&self) -> &Arc<PublicApp> {
        &self.app
    }

    fn on_connection(&self) {}
}

/// Answers the requests that Pingora has read.
pub(crate) struct PublicApp {
    public: Arc<PublicService>,
    time: Arc<StoreTime>,
}

#[async_trait]
impl HttpServerApp for PublicApp {
    // Errors of a connection are ignored, because the client notices them and they say nothing about weir.
    async fn process_new_http(
        self: &Arc<Self>,
        mut session: ServerSession,
        shutdown: &ShutdownWatch,
    ) -> Option<ReusedHttpStream> {
        if !session.read_request().await.ok()? {
            return None;
        }
        if *shutdown.borrow() {
            session.set_keepalive(None);
        }
        let answer = self.answer(&session);
        write(&mut session, answer).await.ok()?;
        let reusable = session.finish().await.ok()??;
        Some(ReusedHttpStream::new(reusable.into_parts().0, None))
    }
}

impl PublicApp {
    fn answer(&self, session: &ServerSession) -> PublicResponse {
        let (now, head) = (clock::instant(), session.req_header());
        let peer = session.client_addr().and_then(|address| address.as_inet());
        let ask = PublicRequest {
            method: &head.method,
            path: head.uri.path(),
            query: head.uri.query(),
            headers: &head.headers,
            peer: peer.map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |peer| peer.ip()),
            now_ms: self.time.now_ms(now),
            now,
        };
        self.public.answer(&ask).unwrap_or_else(PublicService::not_found)
    }
}

/// Writes an answer. For a HEAD request the body is left out, but the length is that of the body.
pub(crate) async fn write(session: &mut ServerSession, answer: PublicResponse) -> Result<()> {
    let mut head = ResponseHeader::build(answer.status, Some(answer.headers.len() + 2))?;
    for (name, value) in &answer.headers {
        head.append_header(name, value)?;
    }
    if answer.has_body() {
        head.insert_header(header::CONTENT_LENGTH, answer.body.len())?;
    }
    let is_bare = !answer.has_body() || answer.body.is_empty() || session.req_header().method == Method::HEAD;
    let mut tasks = vec![HttpTask::Header(Box::new(head), is_bare)];
    if !is_bare {
        tasks.push(HttpTask::Body(Some(answer.body), true));
    }
    session.response_duplex_vec(tasks).await?;
    Ok(())
}
