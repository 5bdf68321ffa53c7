//! From an operation and a model's name to a provider, an endpoint and the name the provider knows.

use std::sync::Arc;

use crate::domain::{
    catalogue::{Catalogue, Model},
    operation::Operation,
    protocol::Protocol,
    rules::{Endpoint, Provider},
};

/// Where a request goes.
#[derive(Clone, Debug)]
pub struct Route {
    /// The model asked for.
    pub model: Arc<Model>,
    /// Who serves it; on, with `auth`.
    pub provider: Arc<Provider>,
    /// Where, the model filled in.
    pub endpoint: Endpoint,
    /// What the provider calls the model.
    pub upstream_model: String,
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

/// Finds the first provider of the model that is on and serves the operation.
///
/// # Errors
/// See [`RouteError`].
pub fn route(catalogue: &Catalogue, operation: Operation, model: &str) -> Result<Route, RouteError> {
    let model = catalogue.find(model).ok_or(RouteError::ModelUnknown)?;
    if !model.is_on() {
        return Err(RouteError::ProviderOff);
    }
    let provider = model
        .provider_for(operation)
        .ok_or_else(|| not_served(model, operation))?;
    let template = provider
        .endpoints
        .of(operation)
        .ok_or_else(|| not_served(model, operation))?;
    Ok(Route {
        endpoint: template.fill(&model.upstream_name),
        upstream_model: model.upstream_name.clone(),
        provider: Arc::clone(provider),
        model: Arc::clone(model),
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
