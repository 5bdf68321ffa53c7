//! The HTML pages for users: the operators' console on a listener of its own, and the portal for key owners on the gateway's
//! listeners.
//!
//! Pages are complete HTML documents without scripts. All changes go through the admin API ([`crate::admin`]), with its checks
//! and its audit record.

mod alerts;
mod forms;
mod key_page;
mod layout;
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
    admin::{Admin, AdminHandler, AdminPeer, audit::Author, log::export::LogExportFile},
    api::{error::AdminError, log::ExportLog},
    console::{
        forms::Forms,
        layout::Operator,
        request::{FormFields, ListenerContext},
        session::BrowserSession,
    },
    domain::{VersionError, faults::stability::StabilityWindow, keys::change::ChangePrecondition, rules::RuleFile},
    front::Handler,
    side::public,
};

pub(crate) use self::{
    alerts::{Alerts, AlertsReply},
    operator::{Console, SignInMethods},
    snippet::of_key as snippets_of_key,
};
pub(crate) use crate::console::layout::{LinkAddress, Links};
pub(crate) use crate::console::{
    request::{Site, read},
    snippet::Examples,
};

/// What the console reads besides the admin API. No method blocks.
pub(crate) trait ConsoleSource: Send + Sync {
    /// Returns how the models performed in the last 24 hours. `None` until the public record has been read from the store.
    fn window(&self) -> Option<StabilityWindow>;
    /// Returns this node's current problems, each as a sentence.
    fn troubles(&self) -> Vec<String>;
    /// Returns a future that resolves to the alerts of Prometheus. `None` if its URL is not configured.
    fn alerts(&self) -> Option<AlertsReply>;
    /// Returns the provider files that are in force.
    fn rule_files(&self) -> Vec<RuleFile>;
    /// Returns the gateway's address for clients, such as `http://127.0.0.1:8080`.
    fn gateway(&self) -> String;
}

/// What a page needs to answer one request.
struct PageContext<'a> {
    /// The admin API.
    api: &'a Admin,
    /// What this node reports about itself.
    source: &'a dyn ConsoleSource,
    /// The session to which the request belongs.
    session: &'a BrowserSession<Operator>,
    /// Renders the forms of the page.
    forms: Forms<'a, Operator>,
    /// The query of the request.
    query: &'a FormFields,
}

impl PageContext<'_> {
    /// Makes a call of the admin API that only reads. All sessions share the answer for some seconds ([`Admin::call_cached`]).
    async fn fetch<Q: AdminHandler>(&self, question: Q) -> Result<Arc<Q::Answer>, AdminError> {
        self.api.call_cached(self.peer().into(), question).await
    }

    /// Makes a call of the admin API that changes something.
    async fn change<Q: AdminHandler>(&self, question: Q) -> Result<Q::Answer, AdminError> {
        self.api.call(self.peer().into(), question).await
    }

    /// Makes a call that changes an object. If the object no longer has the version that its page was rendered from, it is not
    /// changed. `None` for any version.
    async fn change_seen<Q: AdminHandler>(&self, version: Option<&str>, question: Q) -> Result<Q::Answer, AdminError> {
        let version = version.map(str::parse).transpose();
        let version = version.map_err(|error: VersionError| AdminError::invalid(error.to_string()))?;
        let author = Author {
            peer: self.peer(),
            from: version.map_or(ChangePrecondition::Anything, ChangePrecondition::Version),
        };
        self.api.call(author, question).await
    }

    /// Returns at most `rows_max` rows of the log as a file.
    async fn log_file(&self, export: ExportLog, rows_max: usize) -> Result<LogExportFile, AdminError> {
        self.api.log_file(&self.peer().into(), export, rows_max).await
    }

    fn peer(&self) -> AdminPeer {
        self.session.who.peer()
    }
}

/// The characters that are encoded in a path segment: all except the unreserved characters of RFC 3986.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Appends an encoded segment to a path.
fn below(path: &str, segment: &str) -> String {
    format!("{path}/{}", utf8_percent_encode(segment, SEGMENT))
}

/// The maximum size of a form, in bytes. The largest form has a request that was pasted into the page about provider files.
const FORM_BYTES_MAX: usize = 256 * 1024;

/// Serves connections to the console's listener.
pub(crate) struct ConsoleHandler {
    app: Arc<ConsoleApp>,
}

impl ConsoleHandler {
    /// Creates the handler of `console`. `site` says how browsers reach it.
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

/// Answers the requests that Pingora has read.
pub(crate) struct ConsoleApp {
    console: Console,
    entrance: ListenerContext,
}

#[async_trait]
impl HttpServerApp for ConsoleApp {
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
        let answer = match read(&mut session, &self.entrance).await {
            Ok(request) => self.console.answer(&request).await,
            Err(answer) => *answer,
        };
        public::write(&mut session, answer.into_response()).await.ok()?;
        let reusable = session.finish().await.ok()??;
        Some(ReusedHttpStream::new(reusable.into_parts().0, None))
    }
}
