//! The models and providers that the admin API shows and switches, from this process's parts.

use std::{sync::Arc, time::Instant};

use crate::{
    admin::Providers,
    api::providers::{CredentialView, ModelView, PassedOverView, PlaceView, ProviderView},
    domain::{
        catalogue::{Catalogue, Model},
        money::price::Price,
        rules::Provider,
        strict_toml::nearest,
    },
    edges::{clock, switches::Switches},
    providers::{
        live::LiveCell,
        pools::{CredentialState, PassedOver, PlaceState, Pool},
    },
};

/// What the admin API shows and switches.
pub(super) struct Served {
    live: Arc<LiveCell>,
    switches: Arc<Switches>,
}

impl Served {
    pub(super) fn new(live: &Arc<LiveCell>, switches: &Arc<Switches>) -> Self {
        Self {
            live: Arc::clone(live),
            switches: Arc::clone(switches),
        }
    }
}

impl Providers for Served {
    fn models(&self) -> Vec<ModelView> {
        models(&self.live.get().catalogue, &self.switches)
    }

    fn model_named(&self, name: &str) -> Result<String, Option<String>> {
        let live = self.live.get();
        let near = || nearest(name, live.catalogue.models().map(|model| model.name.as_str())).map(str::to_owned);
        let found = live.catalogue.named(name);
        found.map(|model| model.name.clone()).ok_or_else(near)
    }

    fn price(&self, provider: &str, model: &str) -> Option<Arc<Price>> {
        let live = self.live.get();
        live.catalogue.named(model)?.prices.get(provider).cloned()
    }

    fn providers(&self) -> Vec<ProviderView> {
        let (live, now) = (self.live.get(), clock::instant());
        let view = |provider: &Arc<Provider>| {
            let pool = live.pools.of(&provider.name);
            let credentials = pool.map(|pool| {
                let state = |one: &Arc<CredentialState>| CredentialView {
                    name: one.credential.name.clone(),
                    rests_seconds: one.rests_until(now).map_or(0, |until| (until - now).as_secs()),
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
    let view = |place: PlaceState| PlaceView {
        address: place.address.to_string(),
        origin: format!(
            "{}://{}",
            if place.origin.https { "https" } else { "http" },
            place.origin.authority()
        ),
        ejected_seconds: place.ejected_until.map_or(0, |until| (until - now).as_secs().max(1)),
    };
    let mut places: Vec<PlaceView> = pool.all_places(now).into_iter().map(view).collect();
    // Operations that share a place show it once.
    places.sort();
    places.dedup();
    places
}

fn passed_over(pool: &Pool, now: Instant) -> Vec<PassedOverView> {
    let view = |one: PassedOver| PassedOverView {
        model: one.upstream_model,
        asked_again_seconds: (one.until - now).as_secs(),
    };
    pool.models_passed_over(now).into_iter().map(view).collect()
}

fn models(catalogue: &Catalogue, switches: &Switches) -> Vec<ModelView> {
    let serves = |model: &&Arc<Model>| {
        let mut providers = model.providers.iter();
        providers.any(|provider| provider.is_on() && !switches.is_off(&provider.name))
    };
    let view = |model: &Arc<Model>| ModelView {
        name: model.name.clone(),
        display_name: model.display_name.clone(),
        aliases: model.aliases.clone(),
        provider: model.owner().to_owned(),
        providers: model.providers.iter().map(|provider| provider.name.clone()).collect(),
        protocols: model.protocols_served(|provider| switches.is_off(provider)),
        context_tokens: model.context_tokens,
        prices: model.prices.clone(),
    };
    catalogue.models().filter(serves).map(view).collect()
}
