//! Routes whose endpoints have prices, fixed at admission, and the reasons why a request has no route.

use std::sync::Arc;

use smol_str::SmolStr;

use crate::domain::{
    catalogue::Model,
    money::price::Price,
    wire::{operation::Operation, protocol::Protocol},
};

/// A route with the price of each endpoint. An endpoint's price is found by the endpoint's index in the route.
#[derive(Clone, Debug)]
pub(crate) struct PricedRoute {
    /// The public name of the requested model.
    pub model: SmolStr,
    /// The preferred endpoint, which has index 0.
    pub first: PricedEndpoint,
    /// The other endpoints, from index 1, in the route's order.
    pub others: Vec<PricedEndpoint>,
}

/// An endpoint of a route: a provider that can serve the request, and the model's price there.
#[derive(Clone, Debug)]
pub(crate) struct PricedEndpoint {
    /// The provider's name, for the request's row in the consumption log.
    pub provider: SmolStr,
    pub price: Arc<Price>,
}

impl PricedRoute {
    /// Returns the endpoint with this index, or the first endpoint for an index out of range, which no route produces.
    pub(crate) fn endpoint(&self, index: usize) -> &PricedEndpoint {
        let other = index.checked_sub(1).and_then(|index| self.others.get(index));
        other.unwrap_or(&self.first)
    }

    /// Returns the prices of all endpoints of the route.
    pub(crate) fn prices(&self) -> impl Iterator<Item = &Price> {
        let endpoints = std::iter::once(&self.first).chain(&self.others);
        endpoints.map(|endpoint| &*endpoint.price)
    }
}

/// The reason why no endpoint can serve a request for a model.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RouteError {
    /// None of the model's providers that are on serves the requested operation.
    #[error("the model is not served through this protocol")]
    ModelNotServed {
        /// The protocols in which clients can currently request the model.
        protocols: Vec<Protocol>,
    },
    /// The model is served in the requested protocol, but none of its providers has an endpoint for counting tokens.
    #[error("no provider of the model counts tokens")]
    CountTokensUnsupported,
    /// All providers of the model that serve the operation are off.
    #[error("the providers of the model are off")]
    ProviderOff,
}

impl RouteError {
    /// Returns the reason why no endpoint can serve `operation` of the model. If the catalogue has endpoints for it, an operator
    /// has switched off their providers.
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
