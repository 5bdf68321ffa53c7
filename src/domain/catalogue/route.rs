//! From an operation and a model's name to the providers that may serve it, in order, with request target and upstream
//! model name. Fixed at admission: every attempt goes to one of these.

use std::sync::Arc;

use crate::domain::{
    catalogue::{Catalogue, Model},
    money::price::Price,
    rules::Provider,
    wire::{operation::Operation, protocol::Protocol},
};

/// The model and the providers that may serve a request. Made by [`route`].
#[derive(Clone, Debug)]
pub(crate) struct Route {
    /// The catalogue's model for the requested name.
    pub model: Arc<Model>,
    /// The candidates, the preferred one first. Never empty.
    pub legs: Vec<Leg>,
}

/// One provider that may serve a request.
#[derive(Clone, Debug)]
pub(crate) struct Leg {
    /// Its index in the route. Price and provider of what is served are found by it.
    pub index: usize,
    /// The provider. It is switched on.
    pub provider: Arc<Provider>,
    /// Path and query of the provider's endpoint, with the model filled in.
    pub target: String,
    /// The provider's name for the model.
    pub upstream_model: String,
    /// The provider's price for the model. The leg that served determines the charge.
    pub price: Arc<Price>,
}

/// Why there is no route.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RouteError {
    /// No model has this name, alias or fallback.
    #[error("the model is unknown")]
    ModelUnknown,
    /// No provider of the model serves this operation.
    #[error("the model is not served through this protocol")]
    ModelNotServed {
        /// The protocols in which the model is served now.
        protocols: Vec<Protocol>,
    },
    /// The model is served in this protocol, but none of its providers counts tokens.
    #[error("no provider of the model counts tokens")]
    CountTokensUnsupported,
    /// All of the model's providers are switched off.
    #[error("the providers of the model are off")]
    ProviderOff,
}

/// Finds the model by name, alias or fallback, and its providers that are on, not disabled and serve the operation.
///
/// # Errors
/// A [`RouteError`], if the model is unknown or no provider can serve the operation.
pub(crate) fn route(
    catalogue: &Catalogue,
    operation: Operation,
    model: &str,
    is_disabled: impl Fn(&str) -> bool,
) -> Result<Route, RouteError> {
    let model = catalogue
        .resolve(operation.protocol(), model)
        .ok_or(RouteError::ModelUnknown)?;
    if !model.is_on() {
        return Err(RouteError::ProviderOff);
    }
    let served = model.providers_for(operation);
    let priced = served.filter_map(|(provider, template)| Some((provider, template, model.price_at(provider)?)));
    let mut serving = priced.peekable();
    if serving.peek().is_none() {
        return Err(not_served(model, operation));
    }
    let legs: Vec<Leg> = serving
        .filter(|(provider, ..)| !is_disabled(&provider.name))
        .enumerate()
        .map(|(index, (provider, template, price))| {
            let upstream_model = model.upstream_name_at(provider);
            Leg {
                index,
                target: template.fill(upstream_model),
                upstream_model: upstream_model.to_owned(),
                price: Arc::clone(price),
                provider: Arc::clone(provider),
            }
        })
        .collect();
    if legs.is_empty() {
        return Err(RouteError::ProviderOff);
    }
    Ok(Route {
        model: Arc::clone(model),
        legs,
    })
}

fn not_served(model: &Model, operation: Operation) -> RouteError {
    let counts_tokens = matches!(operation, Operation::CountTokens | Operation::GeminiCountTokens);
    if counts_tokens && model.serves(operation.protocol()) {
        return RouteError::CountTokensUnsupported;
    }
    RouteError::ModelNotServed {
        protocols: Protocol::ALL
            .into_iter()
            .filter(|protocol| model.serves(*protocol))
            .collect(),
    }
}

#[cfg(test)]
mod tests;
