//! The admin API for pages of this very process: the same paths, checks and audit lines as on the socket, without one.

use axum::{Extension, Router, body::Body};
use http::{Method, Request, StatusCode, header};
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;
use serde_json::Value;

use super::{AdminState, Peer, keys::of_person::of_person, router};
use crate::{
    domain::keys::template::{KeyTemplate, PersonOf},
    store::KeyView,
};

/// The largest answer that is read: the API's pages are far smaller.
const ANSWER_BYTES_MAX: usize = 16 * 1024 * 1024;

/// The admin API without a socket.
#[derive(Clone)]
pub(crate) struct LocalApi {
    router: Router,
    state: AdminState,
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

impl LocalApi {
    /// The API on these parts.
    pub(crate) fn new(state: AdminState) -> Self {
        Self {
            router: router(state.clone()),
            state,
        }
    }

    /// Writes down that somebody is about to be signed in. Only pages of this process can: it is no path of the API.
    ///
    /// # Errors
    /// The record cannot be written: nobody must be signed in.
    pub(crate) async fn signs_in(&self, peer: Peer, values: Value) -> Result<(), Refused> {
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
        of_person(&self.state, person, template).await.map_err(|error| Refused {
            status: error.status(),
            message: error.message().to_owned(),
        })
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
        let failed = |why: &dyn ToString| Refused {
            status: StatusCode::INTERNAL_SERVER_ERROR,
            message: why.to_string(),
        };
        if let Some(message) = peer.barred(&method, path) {
            return Err(Refused {
                status: StatusCode::FORBIDDEN,
                message,
            });
        }
        let text = body.map(Value::to_string).unwrap_or_default();
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::CONTENT_TYPE, "application/json")
            .body(Body::from(text))
            .map_err(|error| failed(&error))?;
        let service = TowerToHyperService::new(self.router.clone().layer(Extension(peer)));
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
