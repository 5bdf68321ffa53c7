//! Pages for people: the operators' console on its own listener, and the portal for key owners on the gateway's listeners.
//!
//! Both consist of complete HTML documents without scripts. All their changes go through the admin API ([`crate::admin`]), with
//! its checks and its audit lines.

mod alerts;
mod forms;
mod key_page;
mod layout;
mod link;
pub(crate) mod oauth;
pub(crate) mod openid;
mod operator;
pub(crate) mod portal;
mod request;
mod rows;
mod session;
mod snippet;
mod usage_table;

use std::sync::Arc;

use async_trait::async_trait;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use pingora::{
    apps::{HttpServerApp, ReusedHttpStream},
    protocols::http::ServerSession,
    server::ShutdownWatch,
};

use crate::{
    admin::{Admin, AdminPeer, errors::AdminHandler, log::export::LogExportFile, peer::Author},
    api::{error::AdminError, log::ExportLog},
    console::{
        forms::Forms,
        link::Operator,
        request::{FormFields, ListenerContext},
        session::BrowserSession,
    },
    domain::{
        faults::stability::StabilityWindow, keys::change::ChangePrecondition, rules::RuleFile, version::VersionError,
    },
    front::Handler,
    side::public,
};

pub(crate) use self::{
    alerts::{Alerts, AlertsReply},
    link::{LinkAddress, Links},
    operator::{Console, SignInMethods},
    snippet::of_key as snippets_of_key,
};
pub(crate) use crate::console::{
    request::{Site, read},
    snippet::Examples,
};

/// What the console reads in addition to the admin API. No method may block.
pub(crate) trait ConsoleSource: Send + Sync {
    /// How the models did in the last 24 hours; `None` before the first read from the store.
    fn window(&self) -> Option<StabilityWindow>;
    /// This node's problems, one sentence each.
    fn troubles(&self) -> Vec<String>;
    /// The alerts of Prometheus, to be awaited; `None` if its address is not configured.
    fn alerts(&self) -> Option<AlertsReply>;
    /// The provider files in force.
    fn rule_files(&self) -> Vec<RuleFile>;
    /// The gateway's address for clients, such as `http://127.0.0.1:8080`.
    fn gateway(&self) -> String;
}

/// What a page needs to answer one request.
struct PageContext<'a> {
    /// The admin API.
    api: &'a Admin,
    /// This node's own knowledge.
    source: &'a dyn ConsoleSource,
    /// The session of the request.
    session: &'a BrowserSession<Operator>,
    /// Makes the page's forms.
    forms: Forms<'a, Operator>,
    /// The page's query.
    query: &'a FormFields,
}

impl PageContext<'_> {
    /// Answers a read-only question; all sessions share the answer for a moment ([`Admin::call_cached`]).
    async fn fetch<Q: AdminHandler>(&self, question: Q) -> Result<Arc<Q::Answer>, AdminError> {
        self.api.call_cached(self.peer().into(), question).await
    }

    /// Makes a change.
    async fn change<Q: AdminHandler>(&self, question: Q) -> Result<Q::Answer, AdminError> {
        self.api.call(self.peer().into(), question).await
    }

    /// Makes a change of an object that was shown at `version`, unless it has changed since.
    async fn change_seen<Q: AdminHandler>(&self, version: Option<&str>, question: Q) -> Result<Q::Answer, AdminError> {
        let version = version.map(str::parse).transpose();
        let version = version.map_err(|error: VersionError| AdminError::invalid(error.to_string()))?;
        let author = Author {
            peer: self.peer(),
            from: version.map_or(ChangePrecondition::Anything, ChangePrecondition::Version),
        };
        self.api.call(author, question).await
    }

    /// Rows of the log as a file, at most `rows_max`.
    async fn log_file(&self, export: ExportLog, rows_max: usize) -> Result<LogExportFile, AdminError> {
        self.api.log_file(&self.peer().into(), export, rows_max).await
    }

    fn peer(&self) -> AdminPeer {
        self.session.who.peer()
    }
}

/// Encodes everything in a path segment but the unreserved characters of RFC 3986.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// A path with one more segment, encoded.
fn below(path: &str, segment: &str) -> String {
    format!("{path}/{}", utf8_percent_encode(segment, SEGMENT))
}

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
        let answer = match read(&mut session, &self.entrance).await {
            Ok(request) => self.console.answer(&request).await,
            Err(answer) => *answer,
        };
        public::write(&mut session, answer.into_response()).await.ok()?;
        let reusable = session.finish().await.ok()??;
        Some(ReusedHttpStream::new(reusable.into_parts().0, None))
    }
}
