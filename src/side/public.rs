//! Serves the public stability service on its own listener.

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

/// Serves the connections of the listener. Requests for other paths get 404, in the service's format.
pub(crate) struct PublicHandler {
    app: Arc<PublicApp>,
}

impl PublicHandler {
    /// Serves `public`, which all listeners share.
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

/// Answers Pingora's sessions.
pub(crate) struct PublicApp {
    public: Arc<PublicService>,
    time: Arc<StoreTime>,
}

#[async_trait]
impl HttpServerApp for PublicApp {
    // A failed connection is the client's concern and says nothing about weir, so errors are ignored.
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

/// Writes an answer, for HEAD without its body but with the length for GET.
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
