//! The HTML pages for users: the operators' console on its own listener, and the portal for key owners on the gateway's
//! listeners.
//!
//! Pages are complete HTML documents without scripts. Every change is a call of the admin API ([`crate::admin`]), which checks it
//! and writes it to the audit record.

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
#[cfg(test)]
mod tests;
mod usage_table;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::{
    FutureExt,
    future::{BoxFuture, Shared},
};
use http::{Request, StatusCode, Uri, header};
use jiff::Timestamp;
use parking_lot::Mutex;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use pingora::{
    apps::{HttpServerApp, ReusedHttpStream},
    protocols::http::ServerSession,
    server::ShutdownWatch,
};
use serde::Deserialize;

use crate::{
    admin::{Admin, AdminHandler, AdminPeer, audit::Author, log::export::LogExportFile},
    api::{AdminError, log::ExportLog},
    console::{
        forms::Forms,
        layout::Operator,
        request::{FormFields, ListenerContext},
        session::BrowserSession,
    },
    domain::{VersionError, faults::stability::StabilityWindow, keys::change::ChangePrecondition, rules::RuleFile},
    edges::web_client::{RootsError, WebClient, WebLimits, roots_with_platform},
    front::Handler,
    side,
};

pub(crate) use self::{
    operator::{Console, SignInMethods},
    snippet::of_key as snippets_of_key,
};
pub(crate) use crate::console::layout::{LinkAddress, Links};
pub(crate) use crate::console::{
    request::{Site, read},
    snippet::Examples,
};

/// The data that the console reads in addition to the admin API. No method blocks.
pub(crate) trait ConsoleSource: Send + Sync {
    /// Returns the public record of the models' performance in the last 24 hours. `None` until the record has been read from the
    /// store.
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

/// The context of a request: the data and functions that a page needs to answer it.
struct PageContext<'a> {
    /// The admin API.
    api: &'a Admin,
    /// The data about this node that the admin API does not have.
    source: &'a dyn ConsoleSource,
    /// The session to which the request belongs.
    session: &'a BrowserSession<Operator>,
    /// Renders the forms of the page.
    forms: Forms<'a, Operator>,
    /// The query of the request.
    query: &'a FormFields,
}

impl PageContext<'_> {
    /// Makes a read-only call of the admin API. The answer is cached for some seconds and shared by all sessions
    /// ([`Admin::call_cached`]).
    async fn fetch<Q: AdminHandler>(&self, question: Q) -> Result<Arc<Q::Answer>, AdminError> {
        self.api.call_cached(self.peer().into(), question).await
    }

    /// Makes a call of the admin API that changes something.
    async fn change<Q: AdminHandler>(&self, question: Q) -> Result<Q::Answer, AdminError> {
        self.api.call(self.peer().into(), question).await
    }

    /// Makes a call that changes an object. `version` is the object's version when its page was rendered. If the object now has
    /// another version, the call is refused. `None` accepts any version.
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

/// The maximum size of a form, in bytes. The largest form is on the page about provider files, and contains a pasted request.
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
    // Errors of a connection are ignored, because the client notices them and they are not weir's faults.
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
        side::write_response(&mut session, answer.into_response()).await.ok()?;
        let reusable = session.finish().await.ok()??;
        Some(ReusedHttpStream::new(reusable.into_parts().0, None))
    }
}

/// The limits of a request to Prometheus.
const LIMITS: WebLimits = WebLimits {
    connect: Duration::from_secs(2),
    total: Some(Duration::from_secs(2)),
    answer_bytes_max: 1024 * 1024,
    idle_max: 0,
};
/// The time after the start of a request to Prometheus during which all users share its response or failure. This time is longer
/// than the request's timeout, so that users do not wait one after another for an unreachable Prometheus.
const SHARED_FOR: Duration = Duration::from_secs(3);

/// A client of Prometheus that fetches its alerts. All users who view them at about the same time share one response.
pub(crate) struct Alerts {
    client: WebClient,
    address: String,
    last: Mutex<Option<(Instant, AlertsReply)>>,
}

/// A future that resolves to the alerts, the most severe first, or to the reason why they are not known. It resolves within the
/// timeout of a request.
pub(crate) type AlertsReply = Shared<BoxFuture<'static, Arc<Result<Vec<Alert>, String>>>>;

/// An alert whose condition holds.
#[derive(Debug, Deserialize)]
pub(crate) struct Alert {
    labels: AlertLabels,
    #[serde(default)]
    annotations: AlertAnnotations,
    state: AlertState,
    /// The time at which the alert's condition began to hold.
    #[serde(rename = "activeAt")]
    since: Timestamp,
}

/// The labels that weir reads from an alert. The alerting rules set these labels.
#[derive(Debug, Deserialize)]
struct AlertLabels {
    alertname: String,
    #[serde(default)]
    severity: String,
}

/// The annotations that weir reads from an alert. The alerting rules set these annotations.
#[derive(Debug, Default, Deserialize)]
struct AlertAnnotations {
    #[serde(default)]
    summary: String,
}

/// Whether an alert's condition has held for as long as its rule requires (firing) or not yet (pending).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
enum AlertState {
    Firing,
    Pending,
    #[serde(other)]
    Inactive,
}

#[derive(Deserialize)]
struct PrometheusAlerts {
    data: PrometheusAlertData,
}

#[derive(Deserialize)]
struct PrometheusAlertData {
    alerts: Vec<Alert>,
}

impl Alerts {
    /// Creates a client of the Prometheus server at this URL. Trusts the platform's CA certificates and those in `ca`, the
    /// content of a PEM file.
    ///
    /// # Errors
    /// There are no usable CA certificates.
    pub(crate) fn new(prometheus: &Uri, ca: Option<&[u8]>) -> Result<Self, RootsError> {
        Ok(Self {
            client: WebClient::with_roots(roots_with_platform(ca)?, LIMITS)?,
            address: format!("{}/api/v1/alerts", prometheus.to_string().trim_end_matches('/')),
            last: Mutex::default(),
        })
    }

    /// Returns a future that resolves to the current alerts.
    pub(crate) fn read(&self, now: Instant) -> AlertsReply {
        let mut last = self.last.lock();
        if let Some((asked, reply)) = &*last
            && now.saturating_duration_since(*asked) < SHARED_FOR
        {
            return reply.clone();
        }
        let reply = fetch_alerts(self.client.clone(), self.address.clone());
        let reply = reply.map(Arc::new).boxed().shared();
        *last = Some((now, reply.clone()));
        reply
    }
}

async fn fetch_alerts(client: WebClient, address: String) -> Result<Vec<Alert>, String> {
    let request = Request::get(address).header(header::ACCEPT, "application/json");
    let request = request.body(Bytes::new()).map_err(|error| error.to_string())?;
    let answer = client.send(request).await.map_err(|error| error.to_string())?;
    parse_alerts(answer.status(), answer.body())
}

fn parse_alerts(status: StatusCode, body: &[u8]) -> Result<Vec<Alert>, String> {
    if status != StatusCode::OK {
        return Err(format!("it responded with status {}", status.as_u16()));
    }
    let reply: Result<PrometheusAlerts, _> = serde_json::from_slice(body);
    let mut alerts = reply
        .map_err(|_| "its response is not a list of alerts".to_owned())?
        .data
        .alerts;
    alerts.retain(|alert| alert.state != AlertState::Inactive);
    alerts.sort_by_cached_key(|alert| {
        let is_lesser = alert.labels.severity != "critical";
        (alert.state, is_lesser, alert.labels.alertname.clone(), alert.since)
    });
    Ok(alerts)
}
