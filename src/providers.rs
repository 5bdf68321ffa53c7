//! The node's data about providers: pools, endpoints, provider state and learned usage. The config snapshot combines a
//! configuration with its pools and endpoints, and a reload replaces it as a unit. A request uses the same snapshot to its end,
//! so it never mixes two configurations.

pub(crate) mod learnt_usage;
pub(crate) mod pools;
pub(crate) mod sessions;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use arc_swap::ArcSwap;

use crate::{
    config::Config,
    domain::{
        QuickMap,
        catalogue::{
            Catalogue, Model, ModelEndpoint,
            models::{PricedEndpoint, PricedRoute, RouteError},
        },
        rules::{EndpointTarget, Provider},
        translation::Translation,
        wire::operation::{Operation, UpstreamOperation},
    },
    providers::pools::{Breaker, Pool, Pools, ProviderBackends},
    telemetry::metrics::EndpointSeries,
};

/// One version of everything that a reload replaces. The start and each reload create one.
#[derive(Debug)]
pub(crate) struct ConfigSnapshot {
    /// The checked configuration.
    pub config: Arc<Config>,
    /// Models, providers and their rules.
    pub catalogue: Arc<Catalogue>,
    /// The run-time state of the catalogue's providers: credentials, backends, circuits and retry budgets.
    pub pools: Arc<Pools>,
    /// The routes to the catalogue's models.
    pub routes: Routes,
}

impl ConfigSnapshot {
    /// Creates a snapshot from parts that have already been checked. `pools` are the pools of the catalogue's providers.
    pub(crate) fn new(config: Arc<Config>, catalogue: Arc<Catalogue>, pools: Arc<Pools>) -> Self {
        Self {
            routes: Routes::prepare(&catalogue, &pools),
            config,
            catalogue,
            pools,
        }
    }
}

/// The current config snapshot. Readers never block.
#[derive(Debug)]
pub(crate) struct CurrentConfig(ArcSwap<ConfigSnapshot>);

impl CurrentConfig {
    /// Creates the current configuration with its first snapshot.
    pub(crate) fn new(live: ConfigSnapshot) -> Self {
        Self(ArcSwap::from_pointee(live))
    }

    /// Returns the current snapshot.
    pub(crate) fn get(&self) -> Arc<ConfigSnapshot> {
        self.0.load_full()
    }

    /// Replaces the current snapshot. Running requests keep the snapshot with which they began.
    pub(crate) fn set(&self, live: ConfigSnapshot) {
        self.0.store(Arc::new(live));
    }
}

/// One way to serve an operation of a model: an enabled provider, the provider's name for the model, and this node's state for
/// both.
#[derive(Debug)]
pub(crate) struct Endpoint {
    /// The provider.
    pub provider: Arc<Provider>,
    /// The provider's name for the model.
    pub upstream_model: String,
    /// The path and query of the provider's URL, with the model's name filled in.
    pub target: EndpointTarget,
    /// The operation of the provider's endpoint.
    pub operation: UpstreamOperation,
    /// How requests are translated; `None` if the provider speaks the client's protocol.
    pub translation: Option<Translation>,
    /// The provider's price for the model. A request is charged at the price of the endpoint that served it.
    pub priced: PricedEndpoint,
    /// The provider's credentials and retry budget.
    pub pool: Arc<Pool>,
    /// The backends that serve the operation.
    pub backends: Arc<ProviderBackends>,
    /// The circuit of this model at this provider.
    pub breaker: Breaker,
    /// The metrics of the requests that this endpoint has served.
    pub series: EndpointSeries,
}

/// The endpoints that can serve a request, with their prices. Every attempt of the request goes to one of them.
#[derive(Debug)]
pub(crate) struct Route {
    /// The catalogue's model for the requested name.
    pub model: Arc<Model>,
    /// The endpoints in order of preference. Never empty.
    pub endpoints: Vec<Arc<Endpoint>>,
    /// The prices of the endpoints, in the same order.
    pub prices: Arc<PricedRoute>,
}

/// The routes to all models of one configuration, by each model's public name. They are prepared when the configuration is
/// loaded.
#[derive(Debug)]
pub(crate) struct Routes(QuickMap<String, Vec<(Operation, Arc<Route>)>>);

impl Endpoint {
    /// Prepares an endpoint. Returns `None` if its provider has no pool, or its URL is too long for a request target.
    fn prepare(pools: &Pools, model: &Model, operation: Operation, serving: ModelEndpoint<'_>) -> Option<Arc<Self>> {
        let ModelEndpoint {
            provider,
            operation: upstream,
            template,
            price,
        } = serving;
        let upstream_model = model.upstream_name_at(provider);
        let pool = pools.of(&provider.name)?;
        Some(Arc::new(Self {
            target: template.target(upstream_model, upstream).ok()?,
            upstream_model: upstream_model.to_owned(),
            priced: PricedEndpoint {
                provider: provider.name.as_str().into(),
                price: Arc::clone(price),
            },
            breaker: pool.circuit(upstream, upstream_model),
            backends: Arc::clone(pool.backends(upstream)?),
            translation: translation(model, provider, operation, upstream),
            operation: upstream,
            series: EndpointSeries::new(operation, &model.name, &provider.name),
            pool: Arc::clone(pool),
            provider: Arc::clone(provider),
        }))
    }
}

/// Returns how requests for an operation are translated; `None` if the provider serves the operation itself.
fn translation(
    model: &Model,
    provider: &Provider,
    operation: Operation,
    upstream: UpstreamOperation,
) -> Option<Translation> {
    let mode = model.translate.filter(|_| upstream != operation.into())?;
    Some(Translation {
        from: operation.protocol(),
        to: upstream.protocol(),
        mode,
        chat: provider.chat.clone(),
    })
}

impl Route {
    /// Creates a route; returns `None` if there is no endpoint.
    fn new(model: &Arc<Model>, endpoints: Vec<Arc<Endpoint>>) -> Option<Arc<Self>> {
        let (first, others) = endpoints.split_first()?;
        let prices = Arc::new(PricedRoute {
            model: model.name.as_str().into(),
            first: first.priced.clone(),
            others: others.iter().map(|endpoint| endpoint.priced.clone()).collect(),
        });
        Some(Arc::new(Self {
            model: Arc::clone(model),
            endpoints,
            prices,
        }))
    }

    /// Returns the route without the providers that an operator has switched off; `None` if no endpoint remains.
    fn without(self: &Arc<Self>, is_off: impl Fn(&str) -> bool) -> Option<Arc<Self>> {
        let is_on = |endpoint: &&Arc<Endpoint>| !is_off(&endpoint.provider.name);
        if self.endpoints.iter().all(|endpoint| is_on(&endpoint)) {
            return Some(Arc::clone(self));
        }
        Self::new(&self.model, self.endpoints.iter().filter(is_on).cloned().collect())
    }

    /// Whether requests are translated at any endpoint.
    pub(crate) fn is_translated(&self) -> bool {
        self.endpoints.iter().any(|endpoint| endpoint.translation.is_some())
    }

    /// Whether the route leaves a choice between endpoints or between credentials.
    pub(crate) fn has_choice(&self) -> bool {
        let has_several = |endpoint: &Arc<Endpoint>| endpoint.pool.credentials.len() > 1;
        self.endpoints.len() > 1 || self.endpoints.iter().any(has_several)
    }
}

impl Routes {
    /// Prepares the routes to the models of a catalogue. `pools` are the pools of the catalogue's providers.
    pub(crate) fn prepare(catalogue: &Catalogue, pools: &Pools) -> Self {
        let routes = |model: &Arc<Model>| {
            let route = |operation: Operation| {
                let serving = model.endpoints_for(operation);
                let endpoints = serving.filter_map(|serving| Endpoint::prepare(pools, model, operation, serving));
                let mut endpoints: Vec<_> = endpoints.collect();
                // The sort is stable, so the operator's order decides among translated endpoints and among those that are not
                // translated.
                endpoints.sort_by_key(|endpoint| endpoint.translation.is_some());
                Some((operation, Route::new(model, endpoints)?))
            };
            (
                model.name.clone(),
                Operation::ALL.into_iter().filter_map(route).collect(),
            )
        };
        Self(catalogue.served_models().map(routes).collect())
    }

    /// Finds the route to a model for an operation, with only the providers that are not switched off now.
    ///
    /// # Errors
    /// Returns the reason why no such route exists.
    pub(crate) fn find(
        &self,
        model: &Model,
        operation: Operation,
        is_off: impl Fn(&str) -> bool,
    ) -> Result<Arc<Route>, RouteError> {
        let routes = self.0.get(&model.name).into_iter().flatten();
        let mut routes = routes.filter(|(served, _)| *served == operation);
        let route = routes.next().and_then(|(_, route)| route.without(is_off));
        route.ok_or_else(|| RouteError::of(model, operation))
    }
}
