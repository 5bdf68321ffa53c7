//! The client's request: its head, its body, and the model that it names.

pub(crate) mod body;
pub(crate) mod body_work;
pub(crate) mod compressed_body;
pub(crate) mod head;
pub(crate) mod read_body;
pub(crate) mod translation;

use std::sync::Arc;

use http::HeaderMap;

use crate::{
    domain::{
        catalogue::{Catalogue, Model, models::RouteError},
        faults::refusal::Refusal,
        keys::{KeyRecord, secret::ServiceKey},
        rules::RequestFacts,
        wire::{
            json_scan::{NamedModels, Scan},
            operation::{self, Operation},
        },
    },
    edges::ProviderSwitches,
    providers::{ConfigSnapshot, Endpoint, Route},
};

/// The client's request. Admission creates it, and nothing changes it afterwards.
#[derive(Debug)]
pub(crate) struct Request {
    /// The config snapshot that the request uses to its end.
    pub live: Arc<ConfigSnapshot>,
    /// The requested operation, which implies the protocol.
    pub operation: Operation,
    /// Whether the client requests a streamed answer.
    pub stream: bool,
    /// The model's name as the client sent it.
    pub asked: String,
    /// The catalogue's model for the requested name.
    pub model: Arc<Model>,
    /// The client's key in clear. Headers and queries that contain it are not forwarded.
    pub presented: ServiceKey,
    /// The client's query without its key.
    pub query: Option<String>,
    /// The facts read from the body.
    pub scan: Box<Scan>,
}

impl Request {
    /// Returns the facts to which the conditions in a provider's file refer. `headers` are the client's.
    pub(crate) fn facts<'a>(&'a self, headers: &'a HeaderMap, endpoint: &'a Endpoint) -> RequestFacts<'a> {
        RequestFacts {
            operation: endpoint.operation,
            is_translated: endpoint.translation.is_some(),
            model: &self.asked,
            upstream_model: &endpoint.upstream_model,
            headers,
        }
    }
}

/// The maximum number of models that a refusal names as alternatives.
const NAMED_MODELS_MAX: usize = 8;

/// Returns the name of the requested model as the client sent it, in the path or in the body.
pub(crate) fn requested_name(operation: Operation, path_model: Option<String>, scan: &Scan) -> Result<String, Refusal> {
    let invalid = |reason: &str| Refusal::BodyInvalid {
        reason: reason.to_owned(),
    };
    if let Some(model) = path_model {
        if operation == Operation::GeminiCountTokens || scan.has_contents {
            return Ok(model);
        }
        return Err(invalid("`contents` is missing: a generateContent request needs it"));
    }
    match &scan.model {
        Some(model) if model.text.is_empty() => Err(invalid("`model` is empty: name the model that is to answer")),
        Some(model) => Ok(model.text.clone()),
        None => Err(invalid("`model` is missing: name the model that is to answer")),
    }
}

/// Finds the catalogue's model for a requested name. Only the name of a known model is logged, and only such a name determines
/// the form of refusals. Any other name may be a key that was pasted into the wrong field.
pub(crate) fn find_model<'c>(
    catalogue: &'c Catalogue,
    operation: Operation,
    asked: &str,
) -> Result<&'c Arc<Model>, Refusal> {
    let is_plausible = operation::is_plausible(asked);
    let found = is_plausible.then(|| catalogue.resolve(operation.protocol(), asked));
    found.flatten().ok_or_else(|| Refusal::ModelUnknown {
        model: asked.to_owned(),
    })
}

/// Finds the route to a model that the client requested by the name `asked`.
///
/// # Errors
/// Returns the refusal if no provider serves the operation now, or the key is not allowed to use the model.
pub(crate) fn find_route(
    live: &ConfigSnapshot,
    switches: &ProviderSwitches,
    key: &KeyRecord,
    operation: Operation,
    asked: &str,
    model: &Model,
) -> Result<Arc<Route>, Refusal> {
    let name = || asked.to_owned();
    let is_off = |provider: &str| switches.is_off(provider);
    let route = live
        .routes
        .find(model, operation, is_off)
        .map_err(|error| match error {
            RouteError::ModelNotServed { protocols } => Refusal::ModelNotServed {
                model: name(),
                protocols,
            },
            RouteError::CountTokensUnsupported => Refusal::CountTokensUnsupported {
                model: name(),
                possible: alternatives(&live.catalogue, key, operation),
            },
            RouteError::ProviderOff => Refusal::ProviderDisabled { model: name() },
        })?;
    if !key.allows_model(&model.name) {
        return Err(Refusal::ModelNotAllowed { model: name() });
    }
    Ok(route)
}

/// Refuses a body that names a further model if the key is not allowed to use that model. Such a name reaches the provider
/// unchanged, so two conditions apply. The name must resolve to a model of the catalogue that the key may use. And if a provider
/// of the route calls other models by that name, the key must be allowed to use at least one of them.
pub(crate) fn check_named_models(
    catalogue: &Catalogue,
    key: &KeyRecord,
    operation: Operation,
    route: &Route,
    named: &NamedModels,
    body: &[u8],
) -> Result<(), Refusal> {
    if key.models.is_none() {
        return Ok(());
    }
    let is_own = |model: &Arc<Model>| key.allows_model(&model.name);
    for (name, _) in named.names(body) {
        let name = operation::without_resource(operation.protocol(), &name);
        let is_meant = operation::is_plausible(name)
            && catalogue.resolve(operation.protocol(), name).is_some_and(is_own)
            && route.endpoints.iter().all(|endpoint| {
                let mut run = catalogue.models_run_as(&endpoint.provider.name, name).peekable();
                run.peek().is_none() || run.any(is_own)
            });
        if !is_meant {
            return Err(Refusal::NamedModelNotAllowed { model: name.to_owned() });
        }
    }
    match named.has_more() {
        true => Err(Refusal::BodyInvalid {
            reason: "the body names more models than weir checks for a key that is limited to certain models"
                .to_owned(),
        }),
        false => Ok(()),
    }
}

/// Lists up to [`NAMED_MODELS_MAX`] models that the key is allowed to use and that have a provider for `operation`.
fn alternatives(catalogue: &Catalogue, key: &KeyRecord, operation: Operation) -> Vec<String> {
    let fits = |model: &Model| model.endpoints_for(operation).next().is_some() && key.allows_model(&model.name);
    let models = catalogue.served_models().filter(|model| fits(model));
    models.map(|model| model.name.clone()).take(NAMED_MODELS_MAX).collect()
}
