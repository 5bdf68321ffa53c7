//! What answers the requests that the front lets in.

use std::sync::Arc;

use bytes::BytesMut;
use pingora::{
    apps::HttpServerApp,
    protocols::{Stream, http::ServerSession},
    server::ShutdownWatch,
};

use crate::front::guarded::Guarded;

/// A request whose head has been checked.
#[derive(Debug)]
pub(crate) struct Arrived {
    /// The head, and what came of the body with it.
    pub bytes: BytesMut,
    /// It is the last one that its connection carries.
    pub is_last: bool,
}

impl Arrived {
    /// Pingora's session for it over `stream`.
    pub(crate) fn session(self, stream: Stream) -> ServerSession {
        let mut session = ServerSession::new_http1(stream);
        session.set_pipelined_prefix(self.bytes);
        session.set_keepalive_reuses_remaining(self.is_last.then_some(0));
        session
    }
}

/// Answers requests.
pub(crate) trait Handler: Send + Sync + 'static {
    /// Takes Pingora's sessions.
    type App: HttpServerApp + Send + Sync + 'static;
    /// Held while a connection is served, and lent to each of its requests.
    type Visit: Send + Sync + 'static;

    /// The application behind.
    fn app(&self) -> &Arc<Self::App>;

    /// A connection begins.
    fn enter(&self) -> Self::Visit;

    /// Answers one request over HTTP/1.1; the connection comes back if it can carry another.
    fn request<'a>(
        &'a self,
        _visit: &'a Self::Visit,
        arrived: Arrived,
        over: Box<Guarded>,
        shutdown: &'a ShutdownWatch,
    ) -> impl Future<Output = Option<Box<Guarded>>> + Send {
        let answering = self.app().process_new_http(arrived.session(over), shutdown);
        async move {
            let (stream, _) = answering.await?.consume();
            stream.into_any().downcast::<Guarded>().ok()
        }
    }
}
