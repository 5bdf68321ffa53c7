//! From an operation and a model's name to the providers that may serve it, in order, each with its request target and
//! the name it knows the model by. Fixed at admission: whatever is tried later is one of these.

use std::sync::Arc;

use crate::domain::{
    catalogue::{Catalogue, Model},
    operation::Operation,
    price::Price,
    protocol::Protocol,
    rules::Provider,
};

/// Where a request may go.
#[derive(Clone, Debug)]
pub struct Route {
    /// The model that answers.
    pub model: Arc<Model>,
    /// Who serves it, the preferred one first; never empty.
    pub legs: Vec<Leg>,
}

/// One provider that may serve a request.
#[derive(Clone, Debug)]
pub struct Leg {
    /// Who; on.
    pub provider: Arc<Provider>,
    /// The path and query of its endpoint, the model filled in.
    pub target: String,
    /// What it calls the model.
    pub upstream_model: String,
    /// What it charges for the model: the charge follows the leg that served.
    pub price: Arc<Price>,
}

/// Why there is no route.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RouteError {
    /// No model has that name.
    #[error("the model is unknown")]
    ModelUnknown,
    /// The model cannot be asked for this.
    #[error("the model is not served through this protocol")]
    ModelNotServed {
        /// Through which protocols it can be asked now.
        protocols: Vec<Protocol>,
    },
    /// The model answers through this protocol, but none of its providers counts tokens.
    #[error("no provider of the model counts tokens")]
    CountTokensUnsupported,
    /// All of the model's providers are off.
    #[error("the providers of the model are off")]
    ProviderOff,
}

/// Finds the model by name, alias or fallback, and its providers that are on, not disabled and serve the operation.
///
/// # Errors
/// See [`RouteError`].
pub fn route(
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
    let legs: Vec<Leg> = model
        .providers_for(operation)
        .filter_map(|(provider, template)| {
            let upstream_model = model.upstream_name_at(provider);
            Some(Leg {
                target: template.fill(upstream_model),
                upstream_model: upstream_model.to_owned(),
                price: Arc::clone(model.price_at(provider)?),
                provider: Arc::clone(provider),
            })
        })
        .collect();
    if legs.is_empty() {
        return Err(not_served(model, operation));
    }
    let legs: Vec<Leg> = legs
        .into_iter()
        .filter(|leg| !is_disabled(&leg.provider.name))
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
    let all = [Protocol::Messages, Protocol::Responses, Protocol::Gemini];
    RouteError::ModelNotServed {
        protocols: all.into_iter().filter(|protocol| model.serves(*protocol)).collect(),
    }
}

#[cfg(test)]
mod tests;
