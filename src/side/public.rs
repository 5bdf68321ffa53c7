//! The public stability service on a listener of its own.

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
    front::handler::Handler,
    stability::public::{Public, PublicRequest, PublicResponse},
    store::time::StoreTime,
};

/// The service behind its front. What is not its own is 404 in its shape.
pub(crate) struct PublicHandler {
    app: Arc<PublicApp>,
}

impl PublicHandler {
    /// For the service that all listeners share.
    pub(crate) fn new(public: Arc<Public>, time: Arc<StoreTime>) -> Self {
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

    fn enter(&self) {}
}

/// Answers Pingora's sessions.
pub(crate) struct PublicApp {
    public: Arc<Public>,
    time: Arc<StoreTime>,
}

#[async_trait]
impl HttpServerApp for PublicApp {
    // A connection that fails is its client's affair and says nothing about weir: no error is looked at.
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
        self.public.answer(&ask).unwrap_or_else(Public::not_found)
    }
}

/// With the length that GET would have; without the body for HEAD.
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
