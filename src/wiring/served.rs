//! The models and providers that the admin API shows and switches.

use std::{sync::Arc, time::Instant};

use crate::{
    domain::{
        catalogue::{Catalogue, Model},
        rules::Provider,
        strict_toml::nearest,
        wire::protocol::Protocol,
    },
    edges::{clock, switches::Switches},
    providers::{
        live::LiveCell,
        pools::{CredentialState, PassedOver, Pool},
    },
    side::admin::{CredentialView, ModelView, PassedOverView, ProviderView, Providers},
};

/// What the admin API shows and switches.
pub(super) struct Served {
    pub(super) live: Arc<LiveCell>,
    pub(super) switches: Arc<Switches>,
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
                passed_over: pool.map(|pool| passed_over(pool, now)).unwrap_or_default(),
            }
        };
        live.catalogue.providers().map(view).collect()
    }

    fn switch(&self, provider: &str, on: bool) -> std::io::Result<bool> {
        self.switches.set(provider, on)
    }
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
        provider: model.owner().to_owned(),
        protocols: [Protocol::Messages, Protocol::Responses, Protocol::Gemini]
            .into_iter()
            .filter(|protocol| model.serves(*protocol))
            .map(Protocol::as_str)
            .collect(),
        prices: model.prices.clone(),
    };
    catalogue.models().filter(serves).map(view).collect()
}
