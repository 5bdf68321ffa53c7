//! The model that a request names, and the providers that may serve it.

use std::sync::Arc;

use crate::{
    domain::{
        catalogue::{Catalogue, Model, route::RouteError},
        faults::refusal::Refusal,
        keys::key::KeyRecord,
        wire::{
            json_scan::{NamedModels, Scan},
            model_name,
            operation::Operation,
        },
    },
    edges::switches::Switches,
    providers::{endpoint::Route, live::Live},
};

/// The most models that a refusal names as alternatives.
const NAMED_MODELS_MAX: usize = 8;

/// The model's name as the client gave it, in the path or in the body.
pub(crate) fn asked(operation: Operation, path_model: Option<String>, scan: &Scan) -> Result<String, Refusal> {
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

/// The model that answers for a name. Only a name that has one is logged, and decides the form of refusals: another one may be
/// anything, even a key pasted into the wrong field.
pub(crate) fn find<'c>(catalogue: &'c Catalogue, operation: Operation, asked: &str) -> Result<&'c Arc<Model>, Refusal> {
    let is_plausible = model_name::is_plausible(asked);
    let found = is_plausible.then(|| catalogue.resolve(operation.protocol(), asked));
    found.flatten().ok_or_else(|| Refusal::ModelUnknown {
        model: asked.to_owned(),
    })
}

/// The route to a model that was asked for by this name, if the key may use it.
pub(crate) fn route(
    live: &Live,
    switches: &Switches,
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
                possible: serving(&live.catalogue, key, operation),
            },
            RouteError::ProviderOff => Refusal::ProviderDisabled { model: name() },
        })?;
    if !key.allows_model(&model.name) {
        return Err(Refusal::ModelNotAllowed { model: name() });
    }
    Ok(route)
}

/// Refuses a body that names a further model which the key may not use, wherever a provider would run it. Such a name reaches
/// the provider as it is. So it has to mean a model of the key's by its name in the catalogue, and to be no other model's name
/// at a provider of the route.
pub(crate) fn check_named(
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
        let name = model_name::without_resource(operation.protocol(), &name);
        let is_meant = model_name::is_plausible(name)
            && catalogue.resolve(operation.protocol(), name).is_some_and(is_own)
            && route.endpoints.iter().all(|endpoint| {
                let mut run = catalogue.run_as(&endpoint.provider.name, name).peekable();
                run.peek().is_none() || run.any(is_own)
            });
        if !is_meant {
            return Err(Refusal::NamedModelNotAllowed { model: name.to_owned() });
        }
    }
    match named.has_more() {
        true => Err(Refusal::BodyInvalid {
            reason: "it names more models than are looked up for a key that may not use all".to_owned(),
        }),
        false => Ok(()),
    }
}

/// Models that the key may use and that have a provider for `operation`, as many as fit into a refusal's message.
fn serving(catalogue: &Catalogue, key: &KeyRecord, operation: Operation) -> Vec<String> {
    let fits = |model: &Model| model.serving(operation).next().is_some() && key.allows_model(&model.name);
    let models = catalogue.models().filter(|model| fits(model));
    models.map(|model| model.name.clone()).take(NAMED_MODELS_MAX).collect()
}
