//! Routes with the prices of their endpoints, fixed at admission, and why a model has none.

use std::sync::Arc;

use smol_str::SmolStr;

use crate::domain::{
    catalogue::Model,
    money::price::Price,
    wire::{operation::Operation, protocol::Protocol},
};

/// A route with its prices. A price is found by the index of the endpoint that served.
#[derive(Clone, Debug)]
pub(crate) struct PricedRoute {
    /// The catalogue's name of the requested model.
    pub model: SmolStr,
    /// The preferred endpoint.
    pub first: PricedEndpoint,
    /// The other endpoints, in the route's order.
    pub others: Vec<PricedEndpoint>,
}

/// A provider that may serve the request, and its price for the model.
#[derive(Clone, Debug)]
pub(crate) struct PricedEndpoint {
    /// The provider's name, for the row.
    pub provider: SmolStr,
    pub price: Arc<Price>,
}

impl PricedRoute {
    /// The endpoint with this index. An index out of range, which no route produces, returns the first endpoint.
    pub(crate) fn endpoint(&self, index: usize) -> &PricedEndpoint {
        let other = index.checked_sub(1).and_then(|index| self.others.get(index));
        other.unwrap_or(&self.first)
    }

    /// The prices of all endpoints.
    pub(crate) fn prices(&self) -> impl Iterator<Item = &Price> {
        let endpoints = std::iter::once(&self.first).chain(&self.others);
        endpoints.map(|endpoint| &*endpoint.price)
    }
}

/// Why there is no route to a model.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RouteError {
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

impl RouteError {
    /// Why no endpoint serves an operation of the model.
    pub(crate) fn of(model: &Model, operation: Operation) -> Self {
        let is_served = model.endpoints_for(operation).next().is_some();
        if is_served || !model.is_on() {
            return Self::ProviderOff;
        }
        if operation.is_token_count() && model.serves(operation.protocol()) {
            return Self::CountTokensUnsupported;
        }
        let served = |protocol: &Protocol| model.serves(*protocol);
        Self::ModelNotServed {
            protocols: Protocol::ALL.into_iter().filter(served).collect(),
        }
    }
}
