//! The admin API for pages of this very process: the same paths, checks and audit lines as on the socket, without one.

use std::sync::Arc;

use axum::{Extension, Router, body::Body};
use http::{Method, Request, Uri, header, uri::InvalidUri};
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;
use serde::Serialize;
use serde_json::Value;

pub(crate) use super::log::export::LogFile;
use super::{Admin, Peer, keys::of_person::of_person, log::export, query::Query, recent::Recent, router};
use crate::{
    api::error::{AdminError, Code},
    domain::{
        keys::{
            change::MadeFrom,
            template::{KeyTemplate, PersonOf},
        },
        role::Role,
    },
    store::KeyView,
};

/// The largest answer that is read: the API's pages are far smaller.
const ANSWER_BYTES_MAX: usize = 16 * 1024 * 1024;

/// The admin API without a socket.
#[derive(Clone)]
pub(crate) struct LocalApi {
    router: Router,
    state: Admin,
    recent: Arc<Recent<Result<Arc<Value>, AdminError>>>,
}

/// The audit record's values of a sign-in.
#[derive(Serialize)]
struct SignIn {
    role: Role,
}

/// Whether a peer may ask for this at all.
fn allowed(peer: &Peer, method: &Method, path: &str) -> Result<(), AdminError> {
    let barred = peer.barred(method, path);
    barred.map_or(Ok(()), |message| Err(AdminError::new(Code::Forbidden, message)))
}

impl LocalApi {
    /// The API on these parts.
    pub(crate) fn new(state: Admin) -> Self {
        Self {
            router: router(state.clone(), Router::new()),
            state,
            recent: Arc::default(),
        }
    }

    /// The API by its questions.
    pub(crate) fn admin(&self) -> &Admin {
        &self.state
    }

    /// Writes down that somebody is about to be signed in. Only pages of this process can: it is no path of the API.
    ///
    /// # Errors
    /// The record cannot be written: nobody must be signed in.
    pub(crate) async fn signs_in(&self, peer: Peer, role: Role) -> Result<(), AdminError> {
        let _change = self.state.changes_seen.begin();
        let values = SignIn { role };
        let written = self.state.audit(peer, "console.sign_in", "", &values).await;
        written.map_err(|error| AdminError::failed(error.to_string()))
    }

    /// The key of a person whom the OpenID provider has just vouched for, made if need be. Only pages of this process can ask.
    ///
    /// # Errors
    /// It cannot be looked up, or not be made.
    pub(crate) async fn key_of(&self, person: &PersonOf<'_>, template: &KeyTemplate) -> Result<KeyView, AdminError> {
        let _change = self.state.changes_seen.begin();
        of_person(&self.state, person, template).await
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
    ) -> Result<LogFile, AdminError> {
        let path = format!("/v1/log/export/{form}{query}");
        allowed(&peer, &Method::GET, &path)?;
        let path: Uri = path
            .parse()
            .map_err(|error: InvalidUri| AdminError::invalid(error.to_string()))?;
        let Query(question) = Query::of(&path)?;
        export::file(&self.state, form, &question, rows_max).await
    }

    /// What a look at this path is answered, now or a moment ago: all who look share it. Whatever was changed through this node is
    /// in it. Answers must not depend on who asks.
    ///
    /// # Errors
    /// The API's refusal.
    pub(crate) async fn look(&self, peer: Peer, path: &str) -> Result<Arc<Value>, AdminError> {
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
    ) -> Result<Value, AdminError> {
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
    ) -> Result<Value, AdminError> {
        let failed = |why: &dyn ToString| AdminError::failed(why.to_string());
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
        let mut answer: Value = serde_json::from_slice(&bytes).unwrap_or_default();
        if head.status.is_success() {
            return Ok(answer);
        }
        let refused = answer
            .get_mut("error")
            .map(Value::take)
            .and_then(|error| serde_json::from_value(error).ok());
        Err(refused.unwrap_or_else(|| AdminError::failed(String::from_utf8_lossy(&bytes))))
    }
}
