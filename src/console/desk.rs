//! What the operators' pages work with: the admin API in the name of their session, and what this node knows itself.

use std::sync::Arc;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use super::{alerts::AlertsReply, fields::Fields, forms::Forms, link::Operator, session::Session};
use crate::{
    admin::{Admin, Peer, ask::Answered, author::Author, log::export::LogFile},
    api::{error::AdminError, log::ExportLog},
    domain::{faults::stability::Window, keys::change::MadeFrom, rules::RuleFile, version::NotAVersion},
};

/// What the console reads besides the admin API. None of it may wait.
pub(crate) trait Source: Send + Sync {
    /// How the models did in the last 24 hours; `None` before the store was read for the first time.
    fn window(&self) -> Option<Window>;
    /// What this node is in trouble with, a sentence each.
    fn troubles(&self) -> Vec<String>;
    /// The alerts of Prometheus, which may be waited for; `None` without its address.
    fn alerts(&self) -> Option<AlertsReply>;
    /// The provider files in force.
    fn rule_files(&self) -> Vec<RuleFile>;
    /// Where clients reach the gateway, `http://127.0.0.1:8080`.
    fn gateway(&self) -> String;
}

/// The desk of one request.
pub(super) struct Desk<'a> {
    /// The admin API.
    pub(super) api: &'a Admin,
    /// What this node knows.
    pub(super) source: &'a dyn Source,
    /// Whose request it is.
    pub(super) session: &'a Session<Operator>,
    /// Makes the page's forms.
    pub(super) forms: Forms<'a, Operator>,
    /// The page's query.
    pub(super) query: &'a Fields,
}

impl Desk<'_> {
    /// The answer to a question, which all who look share.
    pub(super) async fn look<Q: Answered>(&self, question: Q) -> Result<Arc<Q::Answer>, AdminError> {
        self.api.look(self.peer().into(), question).await
    }

    /// Asks for a change.
    pub(super) async fn ask<Q: Answered>(&self, question: Q) -> Result<Q::Answer, AdminError> {
        self.api.ask(self.peer().into(), question).await
    }

    /// Asks for a change of a thing that was seen at this version, as long as it is still at it.
    pub(super) async fn ask_seen<Q: Answered>(
        &self,
        version: Option<&str>,
        question: Q,
    ) -> Result<Q::Answer, AdminError> {
        let version = version.map(str::parse).transpose();
        let version = version.map_err(|error: NotAVersion| AdminError::invalid(error.to_string()))?;
        let author = Author {
            peer: self.peer(),
            from: version.map_or(MadeFrom::Anything, MadeFrom::Version),
        };
        self.api.ask(author, question).await
    }

    /// Rows of the log as a file, at most so many.
    pub(super) async fn log_file(&self, export: ExportLog, rows_max: usize) -> Result<LogFile, AdminError> {
        self.api.log_file(&self.peer().into(), export, rows_max).await
    }

    fn peer(&self) -> Peer {
        self.session.who.peer()
    }
}

/// What needs no encoding in a path: the unreserved characters of RFC 3986.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// A path with one more segment, encoded.
pub(super) fn below(path: &str, segment: &str) -> String {
    format!("{path}/{}", utf8_percent_encode(segment, SEGMENT))
}
