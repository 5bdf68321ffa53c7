//! The interface of a handler, which answers the requests that the front lets in.

use std::sync::Arc;

use bytes::BytesMut;
use pingora::{
    apps::HttpServerApp,
    protocols::{Stream, http::ServerSession},
    server::ShutdownWatch,
};

use crate::front::guarded::ClientConnection;

/// A request whose head has been checked.
#[derive(Debug)]
pub(crate) struct CheckedRequest {
    /// The head, with the part of the body that arrived with it.
    pub bytes: BytesMut,
    /// It is the last request of its connection.
    pub is_last: bool,
}

impl CheckedRequest {
    /// Pingora's session for the request over `stream`.
    pub(crate) fn session(self, stream: Stream) -> ServerSession {
        let mut session = ServerSession::new_http1(stream);
        session.set_pipelined_prefix(self.bytes);
        session.set_keepalive_reuses_remaining(self.is_last.then_some(0));
        session
    }
}

/// Answers requests.
pub(crate) trait Handler: Send + Sync + 'static {
    /// The application that gets Pingora's sessions.
    type App: HttpServerApp + Send + Sync + 'static;
    /// What the handler holds of a connection while it is served.
    type Visit: Send + Sync + 'static;

    fn app(&self) -> &Arc<Self::App>;

    /// A connection begins.
    fn on_connection(&self) -> Self::Visit;

    /// Answers one request over HTTP/1.1; the connection comes back if it can carry another.
    fn request<'a>(
        &'a self,
        _visit: &'a Self::Visit,
        arrived: CheckedRequest,
        over: Box<ClientConnection>,
        shutdown: &'a ShutdownWatch,
    ) -> impl Future<Output = Option<Box<ClientConnection>>> + Send {
        let answering = self.app().process_new_http(arrived.session(over), shutdown);
        async move {
            let (stream, _) = answering.await?.consume();
            stream.into_any().downcast::<ClientConnection>().ok()
        }
    }
}
