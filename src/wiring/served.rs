//! Gives the admin API access to the models and providers of this process, and to the switches of providers.

use std::{sync::Arc, time::Instant};

use crate::{
    admin::ProviderDirectory,
    api::node::{CredentialView, ModelView, PassedOverView, PlaceView, ProviderView},
    domain::{
        catalogue::{Catalogue, Model},
        money::price::Price,
        rules::Provider,
        strict_toml::nearest,
    },
    edges::{clock, switches::ProviderSwitches},
    providers::{
        CurrentConfig,
        pools::{BackendState, CredentialState, OpenCircuit, Pool},
    },
};

/// The models and providers of this process, for the admin API.
pub(super) struct ServedCatalogue {
    live: Arc<CurrentConfig>,
    switches: Arc<ProviderSwitches>,
}

impl ServedCatalogue {
    pub(super) fn new(live: &Arc<CurrentConfig>, switches: &Arc<ProviderSwitches>) -> Self {
        Self {
            live: Arc::clone(live),
            switches: Arc::clone(switches),
        }
    }
}

impl ProviderDirectory for ServedCatalogue {
    fn models(&self) -> Vec<ModelView> {
        models(&self.live.get().catalogue, &self.switches)
    }

    fn model_named(&self, name: &str) -> Result<String, Option<String>> {
        let live = self.live.get();
        let near = || nearest(name, live.catalogue.served_models().map(|model| model.name.as_str())).map(str::to_owned);
        let found = live.catalogue.find_name_or_alias(name);
        found.map(|model| model.name.clone()).ok_or_else(near)
    }

    fn price(&self, provider: &str, model: &str) -> Option<Arc<Price>> {
        let live = self.live.get();
        live.catalogue.find_name_or_alias(model)?.prices.get(provider).cloned()
    }

    fn providers(&self) -> Vec<ProviderView> {
        let (live, now) = (self.live.get(), clock::instant());
        let view = |provider: &Arc<Provider>| {
            let pool = live.pools.of(&provider.name);
            let credentials = pool.map(|pool| {
                let state = |one: &Arc<CredentialState>| CredentialView {
                    name: one.credential.name.clone(),
                    rests_seconds: one.cooldown_end(now).map_or(0, |until| (until - now).as_secs()),
                };
                pool.credentials.iter().map(state).collect()
            });
            ProviderView {
                name: provider.name.clone(),
                display_name: provider.display_name.clone(),
                configured: provider.is_on(),
                why_off: provider.why_off(),
                enabled: !self.switches.is_off(&provider.name),
                credentials: credentials.unwrap_or_default(),
                places_ejected: pool.map_or(0, |pool| pool.ejected(now)),
                places: pool.map(|pool| places(pool, now)).unwrap_or_default(),
                unresolved: pool.map(|pool| pool.unresolved()).unwrap_or_default(),
                passed_over: pool.map(|pool| passed_over(pool, now)).unwrap_or_default(),
            }
        };
        live.catalogue.providers().map(view).collect()
    }

    fn switch(&self, provider: &str, on: bool) -> std::io::Result<bool> {
        self.switches.set(provider, on)
    }
}

fn places(pool: &Pool, now: Instant) -> Vec<PlaceView> {
    let view = |place: BackendState| PlaceView {
        address: place.address.to_string(),
        origin: format!(
            "{}://{}",
            if place.origin.https { "https" } else { "http" },
            place.origin.authority()
        ),
        ejected_seconds: place.ejected_until.map_or(0, |until| (until - now).as_secs().max(1)),
    };
    let mut places: Vec<PlaceView> = pool.backend_states(now).into_iter().map(view).collect();
    // A backend that several operations share is returned once.
    places.sort();
    places.dedup();
    places
}

fn passed_over(pool: &Pool, now: Instant) -> Vec<PassedOverView> {
    let view = |one: OpenCircuit| PassedOverView {
        model: one.upstream_model,
        asked_again_seconds: (one.until - now).as_secs(),
    };
    pool.open_circuits(now).into_iter().map(view).collect()
}

fn models(catalogue: &Catalogue, switches: &ProviderSwitches) -> Vec<ModelView> {
    let serves = |model: &&Arc<Model>| {
        let mut providers = model.providers.iter();
        providers.any(|provider| provider.is_on() && !switches.is_off(&provider.name))
    };
    let view = |model: &Arc<Model>| ModelView {
        name: model.name.clone(),
        display_name: model.display_name.clone(),
        aliases: model.aliases.clone(),
        provider: model.preferred_provider().to_owned(),
        providers: model.providers.iter().map(|provider| provider.name.clone()).collect(),
        protocols: model.protocols_served(|provider| switches.is_off(provider)),
        context_tokens: model.context_tokens,
        prices: model.prices.clone(),
    };
    catalogue.served_models().filter(serves).map(view).collect()
}
