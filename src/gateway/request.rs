//! The client's request: its head, its body, and the model that it names.

pub(crate) mod bodies;
pub(crate) mod body;
pub(crate) mod body_work;
pub(crate) mod compressed_body;
pub(crate) mod gather;
pub(crate) mod head;
pub(crate) mod model;
pub(crate) mod scanning;

use std::sync::Arc;

use http::HeaderMap;

use crate::{
    domain::{
        catalogue::Model,
        keys::secret::ServiceKey,
        rules::RequestFacts,
        wire::{json_scan::Scan, operation::Operation},
    },
    providers::{endpoint::Endpoint, live::ConfigSnapshot},
};

/// The client's request. Made by admission and not changed afterwards.
#[derive(Debug)]
pub(crate) struct Request {
    /// The config snapshot that the request keeps to its end.
    pub live: Arc<ConfigSnapshot>,
    /// The requested operation, which implies the protocol.
    pub operation: Operation,
    /// The client wants a streamed answer.
    pub stream: bool,
    /// The model's name as the client gave it.
    pub asked: String,
    /// The catalogue's model for `asked`.
    pub model: Arc<Model>,
    /// The client's key; headers and queries that contain it are not forwarded.
    pub presented: ServiceKey,
    /// The client's query without its key.
    pub query: Option<String>,
    /// The facts read from the body.
    pub scan: Box<Scan>,
}

impl Request {
    /// The facts that the conditions of a provider's file refer to. `headers` are the client's.
    pub(crate) fn facts<'a>(&'a self, headers: &'a HeaderMap, endpoint: &'a Endpoint) -> RequestFacts<'a> {
        RequestFacts {
            operation: self.operation,
            model: &self.asked,
            upstream_model: &endpoint.upstream_model,
            headers,
        }
    }
}
