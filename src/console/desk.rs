//! What the operators' pages work with: the admin API, called on behalf of their session, and this node's own knowledge.

use std::sync::Arc;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use super::{alerts::AlertsReply, fields::FormFields, forms::Forms, link::Operator, session::BrowserSession};
use crate::{
    admin::{Admin, AdminPeer, ask::AdminHandler, author::Author, log::export::LogExportFile},
    api::{error::AdminError, log::ExportLog},
    domain::{
        faults::stability::StabilityWindow, keys::change::ChangePrecondition, rules::RuleFile, version::VersionError,
    },
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
pub(super) struct PageContext<'a> {
    /// The admin API.
    pub(super) api: &'a Admin,
    /// This node's own knowledge.
    pub(super) source: &'a dyn ConsoleSource,
    /// The session of the request.
    pub(super) session: &'a BrowserSession<Operator>,
    /// Makes the page's forms.
    pub(super) forms: Forms<'a, Operator>,
    /// The page's query.
    pub(super) query: &'a FormFields,
}

impl PageContext<'_> {
    /// Answers a read-only question; all sessions share the answer for a moment ([`Admin::look`]).
    pub(super) async fn fetch<Q: AdminHandler>(&self, question: Q) -> Result<Arc<Q::Answer>, AdminError> {
        self.api.call_cached(self.peer().into(), question).await
    }

    /// Makes a change.
    pub(super) async fn change<Q: AdminHandler>(&self, question: Q) -> Result<Q::Answer, AdminError> {
        self.api.call(self.peer().into(), question).await
    }

    /// Makes a change of an object that was shown at `version`, unless it has changed since.
    pub(super) async fn change_seen<Q: AdminHandler>(
        &self,
        version: Option<&str>,
        question: Q,
    ) -> Result<Q::Answer, AdminError> {
        let version = version.map(str::parse).transpose();
        let version = version.map_err(|error: VersionError| AdminError::invalid(error.to_string()))?;
        let author = Author {
            peer: self.peer(),
            from: version.map_or(ChangePrecondition::Anything, ChangePrecondition::Version),
        };
        self.api.call(author, question).await
    }

    /// Rows of the log as a file, at most `rows_max`.
    pub(super) async fn log_file(&self, export: ExportLog, rows_max: usize) -> Result<LogExportFile, AdminError> {
        self.api.log_file(&self.peer().into(), export, rows_max).await
    }

    fn peer(&self) -> AdminPeer {
        self.session.who.peer()
    }
}

/// Encodes everything in a path segment but the unreserved characters of RFC 3986.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// A path with one more segment, encoded.
pub(super) fn below(path: &str, segment: &str) -> String {
    format!("{path}/{}", utf8_percent_encode(segment, SEGMENT))
}
