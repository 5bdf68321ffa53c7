//! The models that weir serves and their providers: compiled once from provider files and weir.toml, then read-only.

mod build;
mod models;
mod pricing;
pub(crate) mod route;

use std::{collections::BTreeMap, sync::Arc};

use crate::domain::{
    ledger::consumption::PriceModifiers,
    money::price::Price,
    rules::{Fallback, Provider, endpoint::EndpointTemplate},
    settings::{flag, named, settings, tables, text},
    wire::{
        operation::{self, Operation},
        protocol::Protocol,
        usage::Usage,
    },
};
pub(crate) use crate::domain::{
    rules::{
        RawModel,
        raw::{MissingSecret, SecretRef, secret},
    },
    settings::SettingLines,
};

/// All models and providers of one configuration. Shared in an `Arc`.
#[derive(Debug, Default)]
pub(crate) struct Catalogue {
    models: BTreeMap<String, Arc<Model>>,
    /// The public name for each alias.
    aliases: BTreeMap<String, String>,
    providers: Vec<Arc<Provider>>,
}

/// A model as clients see it.
#[derive(Debug)]
pub(crate) struct Model {
    /// The public name, which clients request; also the label in logs and metrics.
    pub name: String,
    /// The human-readable name.
    pub display_name: String,
    /// Other names that clients may request.
    pub aliases: Vec<String>,
    /// Its name at providers.
    pub upstream_name: String,
    /// Its names at single providers, where they differ.
    pub upstream_names: BTreeMap<String, String>,
    /// Its providers, the preferred one first; never empty.
    pub providers: Vec<Arc<Provider>>,
    /// The protocols in which it may be requested.
    pub protocols: Vec<Protocol>,
    /// The maximum number of input tokens, if known.
    pub context_tokens: Option<u64>,
    /// The maximum number of output tokens, if known.
    pub output_tokens: Option<u64>,
    /// The name of its price: its own name unless its file states another.
    pub price: String,
    /// Whether the model is free.
    pub free: bool,
    /// Whether the model may reason without showing it.
    pub hidden_reasoning: bool,
    /// Its price at each of its providers that is on, by the provider's name.
    pub prices: BTreeMap<String, Arc<Price>>,
    /// When it appeared, in seconds since the Unix epoch; 0 if unknown.
    pub created_unix: i64,
}

impl Model {
    /// The providers that are on and serve an operation, in order, each with its endpoint and price.
    pub(crate) fn endpoints_for(
        &self,
        operation: Operation,
    ) -> impl Iterator<Item = (&Arc<Provider>, &EndpointTemplate, &Arc<Price>)> {
        let allowed = self.protocols.contains(&operation.protocol());
        self.providers
            .iter()
            .filter(move |provider| allowed && provider.is_on())
            .filter_map(move |provider| {
                let price = self.prices.get(&provider.name)?;
                Some((provider, provider.endpoints.get(operation)?, price))
            })
    }

    /// Its name at a provider.
    pub(crate) fn upstream_name_at(&self, provider: &Provider) -> &str {
        self.upstream_name_by(&provider.name)
    }

    /// Its name at the provider with this name.
    fn upstream_name_by(&self, provider: &str) -> &str {
        self.upstream_names.get(provider).unwrap_or(&self.upstream_name)
    }

    /// Whether it can be requested in this protocol now.
    pub(crate) fn serves(&self, protocol: Protocol) -> bool {
        let on = |provider: &Arc<Provider>| provider.is_on() && provider.protocols().contains(&protocol);
        self.protocols.contains(&protocol) && self.providers.iter().any(on)
    }

    /// The protocols in which it can be requested now, without providers that an operator has switched off.
    pub(crate) fn protocols_served(&self, is_off: impl Fn(&str) -> bool) -> Vec<Protocol> {
        let serves = |protocol: &Protocol| {
            let mut providers = self.providers.iter();
            let is_asked = |provider: &&Arc<Provider>| provider.is_on() && !is_off(&provider.name);
            self.protocols.contains(protocol)
                && providers.any(|provider| is_asked(&provider) && provider.protocols().contains(protocol))
        };
        Protocol::ALL.into_iter().filter(serves).collect()
    }

    /// Whether any of its providers is on.
    pub(crate) fn is_on(&self) -> bool {
        self.providers.iter().any(|provider| provider.is_on())
    }

    /// The name of its preferred provider, for lists of models.
    pub(crate) fn preferred_provider(&self) -> &str {
        self.providers.first().map_or("", |provider| provider.name.as_str())
    }
}

settings! {
    /// The settings of the catalogue in weir.toml.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub(crate) struct CatalogueSettings {
        /// Changes to a provider of the rule files, by its name. All three keys are optional.
        overrides("provider"): BTreeMap<String, ProviderOverride> = named("anthropic"),
        /// A model in addition to those of the rule files, or instead of the one with the same name.
        models("model"): Vec<RawModel> = tables(),
    } beside {
        /// The lines of all settings, for errors.
        places: SettingLines,
    }
}

settings! {
    /// `[provider.NAME]` of weir.toml.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub(crate) struct ProviderOverride {
        /// `scheme://host[:port]` that replaces that of every endpoint, for example of a `weir sample-provider`; the endpoints'
        /// paths stay.
        base_url: Option<String> = text()
            .fits("not a base URL, give http(s)://HOST[:PORT] without a path or a user", |url| is_base_url(url))
            .optional("http://127.0.0.1:9000"),
        /// Where to read its secret instead.
        secret: Option<SecretRef> = secret().optional("file:anthropic.key"),
        /// Whether it is used at all.
        enabled: Option<bool> = flag(true).optional(true),
    }
}

fn is_base_url(text: &str) -> bool {
    let Ok(url) = text.parse::<http::Uri>() else {
        return false;
    };
    let web = matches!(url.scheme_str(), Some("http" | "https"));
    let bare = url.path_and_query().is_none_or(|path| path.as_str() == "/");
    web && bare && !text.contains('#') && url.authority().is_some_and(|place| !place.as_str().contains('@'))
}

/// A problem with which weir can serve, but which an operator should know.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CatalogueWarning {
    /// A provider has no secret.
    #[error("provider `{provider}` is off: its secret {secret}, its models are not listed")]
    SecretLacking {
        /// The provider's name in the configuration.
        provider: String,
        /// Where the secret was expected.
        secret: MissingSecret,
    },
    /// One of several credentials of a provider has no secret.
    #[error("provider `{provider}`: the credential `{name}` is not used, its secret {secret}")]
    CredentialLacking {
        /// The provider's name in the configuration.
        provider: String,
        /// The credential's name.
        name: String,
        /// Where the secret was expected.
        secret: MissingSecret,
    },
    /// A price of the operator's own list is not used.
    #[error(
        "{file}:{line}: the price `{name}`{} is not used by any model: check its name",
        provider.as_ref().map(|provider| format!(" for provider `{provider}`")).unwrap_or_default()
    )]
    PriceUnused {
        /// The price list's file.
        file: String,
        /// The line of its `[[price]]`.
        line: usize,
        /// The price's name.
        name: String,
        /// The provider that the price is limited to.
        provider: Option<String>,
    },
    /// The configuration switches a provider off.
    #[error("provider `{provider}` is off: disabled in weir.toml, its models are not listed")]
    Disabled {
        /// The provider's name in the configuration.
        provider: String,
    },
}

impl CatalogueWarning {
    /// Whether it reports that a provider is off, which is not a fault.
    pub(crate) fn is_provider_off(&self) -> bool {
        match self {
            Self::SecretLacking { .. } | Self::Disabled { .. } => true,
            Self::CredentialLacking { .. } | Self::PriceUnused { .. } => false,
        }
    }
}

impl Catalogue {
    /// The models whose price differs from the one in `before` under the same version: earlier charges cannot be recomputed from
    /// the new list.
    pub(crate) fn repriced_under_one_version<'a>(&'a self, before: &Self) -> Vec<&'a str> {
        let repriced = |model: &&Arc<Model>| {
            let Some(old) = before.find(&model.name) else {
                return false;
            };
            let mut prices = model.prices.iter();
            prices.any(|(provider, price)| {
                let old = old.prices.get(provider);
                old.is_some_and(|old| old != price && old.version() == price.version())
            })
        };
        self.served_models()
            .filter(repriced)
            .map(|model| model.name.as_str())
            .collect()
    }

    /// The model with this public name, whether or not it can be served now.
    pub(crate) fn find(&self, model: &str) -> Option<&Arc<Model>> {
        self.models.get(model)
    }

    /// The model with this public name or alias, whether or not it can be served now.
    pub(crate) fn find_name_or_alias(&self, name: &str) -> Option<&Arc<Model>> {
        self.models
            .get(name)
            .or_else(|| self.models.get(self.aliases.get(name)?))
    }

    /// The model that serves a requested name: the one with that public name or alias; or else with that name without the mark of
    /// a context window or the date of a snapshot; or else the fallback that a provider's file names for its family.
    pub(crate) fn resolve(&self, protocol: Protocol, asked: &str) -> Option<&Arc<Model>> {
        let listed = operation::name_candidates(asked).find_map(|name| self.find_name_or_alias(name));
        listed.or_else(|| self.find_fallback(protocol, asked))
    }

    fn find_fallback(&self, protocol: Protocol, asked: &str) -> Option<&Arc<Model>> {
        let fallbacks = self.providers.iter().filter(|provider| provider.is_on());
        let fits = |fallback: &&Fallback| fallback.applies_to(protocol, asked);
        let found = fallbacks.filter_map(|provider| provider.fallback.as_ref()).find(fits)?;
        self.models.get(&found.model)
    }

    /// The models that can be served now, in the order of their names.
    pub(crate) fn served_models(&self) -> impl Iterator<Item = &Arc<Model>> {
        self.models.values().filter(|model| model.is_on())
    }

    /// The most expensive model at a provider for this usage.
    pub(crate) fn most_expensive_at(
        &self,
        provider: &str,
        usage: &Usage,
        modifiers: &PriceModifiers,
    ) -> Option<(&Arc<Model>, &Arc<Price>)> {
        let models = self.models.values();
        let priced = models.filter_map(|model| Some((model, model.prices.get(provider)?)));
        priced.max_by_key(|(_, price)| price.sum(usage, modifiers))
    }

    /// Whether any provider that is on has its own form of errors for this protocol.
    pub(crate) fn has_own_error_forms(&self, protocol: Protocol) -> bool {
        let mut on = self.providers.iter().filter(|provider| provider.is_on());
        on.any(|provider| provider.error_form(protocol) != protocol.into())
    }

    /// All providers, on or off, in the order of their files.
    pub(crate) fn providers(&self) -> impl Iterator<Item = &Arc<Provider>> {
        self.providers.iter()
    }
}

#[cfg(test)]
pub(crate) mod tests;
