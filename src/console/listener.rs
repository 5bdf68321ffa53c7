//! The console on its listener.

use std::sync::Arc;

use async_trait::async_trait;
use pingora::{
    apps::{HttpServerApp, ReusedHttpStream},
    protocols::http::ServerSession,
    server::ShutdownWatch,
};

use super::{
    exchange::{self, Entrance},
    operator::Console,
    site::Site,
};
use crate::{front::handler::Handler, side::public};

/// The largest form. The largest thing that is pasted is a request, on the page of rules.
const FORM_BYTES_MAX: usize = 256 * 1024;

/// The console behind its front.
pub(crate) struct ConsoleHandler {
    app: Arc<ConsoleApp>,
}

impl ConsoleHandler {
    /// For a console that browsers reach there.
    pub(crate) fn new(console: Console, site: Site) -> Self {
        let entrance = Entrance {
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

    fn enter(&self) {}
}

/// Answers Pingora's sessions.
pub(crate) struct ConsoleApp {
    console: Console,
    entrance: Entrance,
}

#[async_trait]
impl HttpServerApp for ConsoleApp {
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
        let answer = match exchange::read(&mut session, &self.entrance).await {
            Ok(ask) => self.console.answer(&ask).await,
            Err(answer) => *answer,
        };
        public::write(&mut session, answer.into_response()).await.ok()?;
        let reusable = session.finish().await.ok()??;
        Some(ReusedHttpStream::new(reusable.into_parts().0, None))
    }
}
