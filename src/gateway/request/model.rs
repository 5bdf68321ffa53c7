//! The model that a request names, and the providers that may serve it.

use std::sync::Arc;

use crate::{
    domain::{
        catalogue::{
            Catalogue, Model,
            route::{self, Route, RouteError},
        },
        faults::refusal::Refusal,
        keys::key::KeyRecord,
        wire::{
            json_scan::{NamedModels, Scan},
            model_name,
            operation::Operation,
        },
    },
    edges::switches::Switches,
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

/// The name if the catalogue has it. Only known names are logged, and decide the form of refusals: an unknown one may be anything,
/// even a key pasted into the wrong field.
pub(crate) fn known(catalogue: &Catalogue, operation: Operation, model: &str) -> Option<String> {
    let is_known = model_name::is_plausible(model) && catalogue.resolve(operation.protocol(), model).is_some();
    is_known.then(|| model.to_owned())
}

/// The route to the model of this name, if the key may use it.
pub(crate) fn route(
    catalogue: &Catalogue,
    switches: &Arc<Switches>,
    key: &KeyRecord,
    operation: Operation,
    model: &str,
) -> Result<Route, Refusal> {
    let name = || model.to_owned();
    if !model_name::is_plausible(model) {
        return Err(Refusal::ModelUnknown { model: name() });
    }
    let is_off = |provider: &str| switches.is_off(provider);
    let route = route::route(catalogue, operation, model, is_off).map_err(|error| match error {
        RouteError::ModelUnknown => Refusal::ModelUnknown { model: name() },
        RouteError::ModelNotServed { protocols } => Refusal::ModelNotServed {
            model: name(),
            protocols,
        },
        RouteError::CountTokensUnsupported => Refusal::CountTokensUnsupported {
            model: name(),
            possible: serving(catalogue, key, operation),
        },
        RouteError::ProviderOff => Refusal::ProviderDisabled { model: name() },
    })?;
    if !key.allows_model(&route.model.name) {
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
            && route.legs.iter().all(|leg| {
                let mut run = catalogue.run_as(&leg.provider.name, name).peekable();
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
    let fits = |model: &Model| model.providers_for(operation).next().is_some() && key.allows_model(&model.name);
    let models = catalogue.models().filter(|model| fits(model));
    models.map(|model| model.name.clone()).take(NAMED_MODELS_MAX).collect()
}
