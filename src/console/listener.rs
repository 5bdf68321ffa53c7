//! Serves the console on its own listener.

use std::sync::Arc;

use async_trait::async_trait;
use pingora::{
    apps::{HttpServerApp, ReusedHttpStream},
    protocols::http::ServerSession,
    server::ShutdownWatch,
};

use super::{
    exchange::{self, ListenerContext},
    operator::Console,
    site::Site,
};
use crate::{front::handler::Handler, side::public};

/// The maximum size of a form. The largest is a request pasted on the rules page.
const FORM_BYTES_MAX: usize = 256 * 1024;

/// Serves the console's connections.
pub(crate) struct ConsoleHandler {
    app: Arc<ConsoleApp>,
}

impl ConsoleHandler {
    /// Serves `console`, which browsers reach at `site`.
    pub(crate) fn new(console: Console, site: Site) -> Self {
        let entrance = ListenerContext {
            site,
            form_bytes_max: FORM_BYTES_MAX,
        };
        Self {
            app: Arc::new(ConsoleApp { console, entrance }),
        }
    }
}

impl Handler for ConsoleHandler {
    type App = ConsoleApp;
    type Visit = ();

    fn app(&self) -> &Arc<ConsoleApp> {
        &self.app
    }

    fn on_connection(&self) {}
}

/// Answers Pingora's sessions.
pub(crate) struct ConsoleApp {
    console: Console,
    entrance: ListenerContext,
}

#[async_trait]
impl HttpServerApp for ConsoleApp {
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
        let answer = match exchange::read(&mut session, &self.entrance).await {
            Ok(request) => self.console.answer(&request).await,
            Err(answer) => *answer,
        };
        public::write(&mut session, answer.into_response()).await.ok()?;
        let reusable = session.finish().await.ok()??;
        Some(ReusedHttpStream::new(reusable.into_parts().0, None))
    }
}
