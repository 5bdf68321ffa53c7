//! The admin API for pages of this very process: the same paths, checks and audit lines as on the socket, without one.

mod recent;

use std::sync::Arc;

use axum::{Extension, Router, body::Body};
use http::{Method, Request, StatusCode, Uri, header, uri::InvalidUri};
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;
use serde_json::Value;

use self::recent::Recent;
pub(crate) use super::log::export::LogFile;
use super::{AdminState, Peer, keys::of_person::of_person, log::export, query::Query, reply::ApiError, router};
use crate::{
    domain::keys::{
        change::MadeFrom,
        template::{KeyTemplate, PersonOf},
    },
    store::KeyView,
};

/// The largest answer that is read: the API's pages are far smaller.
const ANSWER_BYTES_MAX: usize = 16 * 1024 * 1024;

/// The admin API without a socket.
#[derive(Clone)]
pub(crate) struct LocalApi {
    router: Router,
    state: AdminState,
    recent: Arc<Recent<Result<Arc<Value>, Refused>>>,
}

/// What the API did not do, and why.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub(crate) struct Refused {
    /// The API's status.
    pub(crate) status: StatusCode,
    /// What is wrong and what to do.
    pub(crate) message: String,
}

impl From<&ApiError> for Refused {
    fn from(error: &ApiError) -> Self {
        Self {
            status: error.status(),
            message: error.message().to_owned(),
        }
    }
}

/// Whether a peer may ask for this at all.
fn allowed(peer: &Peer, method: &Method, path: &str) -> Result<(), Refused> {
    let barred = peer.barred(method, path);
    barred.map_or(Ok(()), |message| {
        Err(Refused {
            status: StatusCode::FORBIDDEN,
            message,
        })
    })
}

impl LocalApi {
    /// The API on these parts.
    pub(crate) fn new(state: AdminState) -> Self {
        Self {
            router: router(state.clone()),
            state,
            recent: Arc::default(),
        }
    }

    /// Writes down that somebody is about to be signed in. Only pages of this process can: it is no path of the API.
    ///
    /// # Errors
    /// The record cannot be written: nobody must be signed in.
    pub(crate) async fn signs_in(&self, peer: Peer, values: Value) -> Result<(), Refused> {
        let _change = self.state.changes_seen.begin();
        let written = self.state.audit(peer, "console.sign_in", "", values).await;
        written.map_err(|error| Refused {
            status: StatusCode::INTERNAL_SERVER_ERROR,
            message: error.to_string(),
        })
    }

    /// The key of a person whom the OpenID provider has just vouched for, made if need be. Only pages of this process can ask.
    ///
    /// # Errors
    /// It cannot be looked up, or not be made.
    pub(crate) async fn key_of(&self, person: &PersonOf<'_>, template: &KeyTemplate) -> Result<KeyView, Refused> {
        let _change = self.state.changes_seen.begin();
        let made = of_person(&self.state, person, template).await;
        made.map_err(|error| Refused::from(&error))
    }

    /// Rows of the log as a file, at most so many: what `GET /v1/log/export/FORM` answers with, in the name of `peer`. The query
    /// is that of the path, percent-encoded, with its `?`.
    ///
    /// # Errors
    /// The API's refusal.
    pub(crate) async fn log_file(
        &self,
        peer: Peer,
        form: &str,
        query: &str,
        rows_max: usize,
    ) -> Result<LogFile, Refused> {
        let path = format!("/v1/log/export/{form}{query}");
        allowed(&peer, &Method::GET, &path)?;
        let path: Uri = path.parse().map_err(|error: InvalidUri| Refused {
            status: StatusCode::BAD_REQUEST,
            message: error.to_string(),
        })?;
        let Query(question) = Query::of(&path).map_err(|error| Refused::from(&error))?;
        let file = export::file(&self.state, form, &question, rows_max).await;
        file.map_err(|error| Refused::from(&error))
    }

    /// What a look at this path is answered, now or a moment ago: all who look share it. Whatever was changed through this node is
    /// in it. Answers must not depend on who asks.
    ///
    /// # Errors
    /// The API's refusal.
    pub(crate) async fn look(&self, peer: Peer, path: &str) -> Result<Arc<Value>, Refused> {
        allowed(&peer, &Method::GET, path)?;
        let make = async { self.call(peer, Method::GET, path, None).await.map(Arc::new) };
        self.recent.get(path, &self.state.changes_seen, make).await
    }

    /// One call, in the name of `peer`. The path is percent-encoded and has the query behind it.
    ///
    /// # Errors
    /// The API's refusal.
    pub(crate) async fn call(
        &self,
        peer: Peer,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Value, Refused> {
        self.change((peer, MadeFrom::Anything), method, path, body).await
    }

    /// The same for a change of a key that was decided on a state of it.
    ///
    /// # Errors
    /// The API's refusal.
    pub(crate) async fn change(
        &self,
        (peer, from): (Peer, MadeFrom),
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Value, Refused> {
        let failed = |why: &dyn ToString| Refused {
            status: StatusCode::INTERNAL_SERVER_ERROR,
            message: why.to_string(),
        };
        allowed(&peer, &method, path)?;
        let text = body.map(Value::to_string).unwrap_or_default();
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::CONTENT_TYPE, "application/json")
            .body(Body::from(text))
            .map_err(|error| failed(&error))?;
        let service = TowerToHyperService::new(self.router.clone().layer(Extension(peer)).layer(Extension(from)));
        let (head, body) = match service.call(request).await {
            Ok(answer) => answer.into_parts(),
            Err(never) => match never {},
        };
        let bytes = axum::body::to_bytes(body, ANSWER_BYTES_MAX).await;
        let bytes = bytes.map_err(|error| failed(&error))?;
        let answer: Value = serde_json::from_slice(&bytes).unwrap_or_default();
        if head.status.is_success() {
            return Ok(answer);
        }
        let told = answer.pointer("/error/message").and_then(Value::as_str);
        Err(Refused {
            status: head.status,
            message: told.map_or_else(|| String::from_utf8_lossy(&bytes).into_owned(), str::to_owned),
        })
    }
}
