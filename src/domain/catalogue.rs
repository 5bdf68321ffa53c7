//! The catalogue of all models that weir serves, with their providers and prices. It is built from provider files and weir.toml
//! when the configuration is loaded, and never changes afterwards. A model that is not free is served only by providers for which
//! it has a price.

mod build;
pub(crate) mod models;
#[cfg(test)]
pub(crate) mod tests;

use std::{collections::BTreeMap, sync::Arc};

use crate::domain::{
    ledger::consumption::PriceModifiers,
    money::price::{Price, PriceList, SHIPPED_FILE},
    rules::{Fallback, Provider, endpoint::EndpointTemplate},
    settings::{flag, named, settings, tables, text},
    strict_toml::suggestion,
    translation::losses::TranslationMode,
    wire::{
        operation::{self, Operation, UpstreamOperation},
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

/// All models and providers of one configuration. The catalogue is shared in an `Arc`.
#[derive(Debug, Default)]
pub(crate) struct Catalogue {
    models: BTreeMap<String, Arc<Model>>,
    /// The aliases of all models, each with the public name of its model.
    aliases: BTreeMap<String, String>,
    providers: Vec<Arc<Provider>>,
}

/// An endpoint of a model: a provider, the operation with which it serves the model, and the model's price at the provider.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ModelEndpoint<'m> {
    /// The provider.
    pub provider: &'m Arc<Provider>,
    /// The operation that is sent to the provider.
    pub operation: UpstreamOperation,
    /// The URL template of the endpoint.
    pub template: &'m EndpointTemplate,
    /// The model's price at the provider.
    pub price: &'m Arc<Price>,
}

/// A model that clients can request.
#[derive(Debug)]
pub(crate) struct Model {
    /// The public name, which clients request. It is also the model's label in logs and metrics.
    pub name: String,
    /// The model's name as displayed to users.
    pub display_name: String,
    /// Other names under which clients can request the model.
    pub aliases: Vec<String>,
    /// The model's name at its providers, except at those in `upstream_names`.
    pub upstream_name: String,
    /// The model's names at the providers that do not use `upstream_name`. Each entry contains a provider's name and the model's
    /// name at this provider.
    pub upstream_names: BTreeMap<String, String>,
    /// The providers that serve the model, in order of preference; never empty.
    pub providers: Vec<Arc<Provider>>,
    /// The protocols in which clients can request the model.
    pub protocols: Vec<Protocol>,
    /// The way in which requests are translated if a provider does not support their protocol; `None` if they are not translated.
    pub translate: Option<TranslationMode>,
    /// The maximum number of input tokens; `None` if it is unknown.
    pub context_tokens: Option<u64>,
    /// The maximum number of output tokens; `None` if it is unknown.
    pub output_tokens: Option<u64>,
    /// The name of the model's price in the price list. It is the model's public name, unless the model's definition sets
    /// `price`.
    pub price: String,
    /// Whether requests for the model cost nothing.
    pub free: bool,
    /// Whether the model can reason without including the reasoning in its answers.
    pub hidden_reasoning: bool,
    /// The model's price at each provider that is on, by the provider's name.
    pub prices: BTreeMap<String, Arc<Price>>,
    /// The time at which the model was released, in seconds since the Unix epoch; 0 if unknown.
    pub created_unix: i64,
}

impl Model {
    /// Returns the endpoints of the model's providers that are on and serve `operation`, in the model's order of providers.
    /// Returns nothing if clients cannot request the model in the operation's protocol.
    pub(crate) fn endpoints_for(&self, operation: Operation) -> impl Iterator<Item = ModelEndpoint<'_>> {
        let allowed = self.protocols.contains(&operation.protocol());
        self.providers
            .iter()
            .filter(move |provider| allowed && provider.is_on())
            .filter_map(move |provider| {
                let price = self.prices.get(&provider.name)?;
                let upstream = self.upstream_operation(provider, operation)?;
                Some(ModelEndpoint {
                    provider,
                    operation: upstream,
                    template: provider.endpoints.get(upstream)?,
                    price,
                })
            })
    }

    /// Returns the model's name at `provider`.
    pub(crate) fn upstream_name_at(&self, provider: &Provider) -> &str {
        self.upstream_name_by(&provider.name)
    }

    /// Returns the model's name at the provider that is named `provider`.
    fn upstream_name_by(&self, provider: &str) -> &str {
        self.upstream_names.get(provider).unwrap_or(&self.upstream_name)
    }

    /// Returns the operation that is sent to the provider for a client's operation: the same operation or, if the provider does
    /// not support it, the operation to which requests are translated. `None` if the provider cannot serve the client's
    /// operation. Token counts are never translated.
    fn upstream_operation(&self, provider: &Provider, operation: Operation) -> Option<UpstreamOperation> {
        if provider.endpoints.get(operation).is_some() {
            return Some(operation.into());
        }
        let is_native = provider.protocols().contains(&operation.protocol());
        let is_translated = self.translate.is_some() && !operation.is_token_count() && !is_native;
        is_translated.then(|| provider.translation_operation()).flatten()
    }

    /// Whether a provider serves the model in this protocol, with or without translation.
    fn is_served_by(&self, provider: &Provider, protocol: Protocol) -> bool {
        let is_translated = || self.translate.is_some() && provider.translation_operation().is_some();
        provider.protocols().contains(&protocol) || is_translated()
    }

    /// Whether clients can currently request the model in `protocol`, because one of its providers is on and serves the protocol.
    pub(crate) fn serves(&self, protocol: Protocol) -> bool {
        let on = |provider: &Arc<Provider>| provider.is_on() && self.is_served_by(provider, protocol);
        self.protocols.contains(&protocol) && self.providers.iter().any(on)
    }

    /// Returns the protocols in which clients can currently request the model. `is_off` is called with a provider's name.
    /// Providers for which it returns true are ignored, because an operator has switched them off.
    pub(crate) fn protocols_served(&self, is_off: impl Fn(&str) -> bool) -> Vec<Protocol> {
        let serves = |protocol: &Protocol| {
            let mut providers = self.providers.iter();
            let is_asked = |provider: &&Arc<Provider>| provider.is_on() && !is_off(&provider.name);
            self.protocols.contains(protocol)
                && providers.any(|provider| is_asked(&provider) && self.is_served_by(provider, *protocol))
        };
        Protocol::ALL.into_iter().filter(serves).collect()
    }

    /// Whether at least one of the model's providers is on.
    pub(crate) fn is_on(&self) -> bool {
        self.providers.iter().any(|provider| provider.is_on())
    }

    /// Returns the name of the model's preferred provider, which appears in lists of models.
    pub(crate) fn preferred_provider(&self) -> &str {
        self.providers.first().map_or("", |provider| provider.name.as_str())
    }
}

settings! {
    /// The settings of weir.toml that change the catalogue: `[provider.NAME]` and `[[model]]`.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub(crate) struct CatalogueSettings {
        /// Changes to a provider that a provider file defines. The name of this table is `provider.`, followed by the provider's
        /// name. Every setting in this table is optional.
        overrides("provider"): BTreeMap<String, ProviderOverride> = named("anthropic"),
        /// Adds a model, or replaces the model of the same name that a provider file defines.
        models("model"): Vec<RawModel> = tables(),
    } beside {
        /// The lines of these settings in weir.toml, for error messages.
        places: SettingLines,
    }
}

settings! {
    /// `[provider.NAME]` of weir.toml: changes to a provider that a provider file defines.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub(crate) struct ProviderOverride {
        /// The scheme, host and port of every endpoint of the provider, as `scheme://host[:port]`. This setting replaces those in
        /// the provider file. An example is the address of a `weir sample-provider`. The endpoints' paths are unchanged.
        base_url: Option<String> = text()
            .fits("not a base URL, give http(s)://HOST[:PORT] without a path or a user", |url| is_base_url(url))
            .optional("http://127.0.0.1:9000"),
        /// Where weir reads the provider's secret, instead of the source in the provider file.
        secret: Option<SecretRef> = secret().optional("file:anthropic.key"),
        /// Whether weir uses the provider.
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

/// A problem that is reported to the operator and does not prevent weir from serving requests.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CatalogueWarning {
    /// The provider is off because its only secret is absent or empty.
    #[error(
        "provider `{provider}` is off and its models are not listed, because it has no secret ({secret}); set the secret"
    )]
    SecretLacking {
        /// The provider's name in the configuration.
        provider: String,
        /// The reference to the secret, and whether the secret is absent or empty.
        secret: MissingSecret,
    },
    /// One of several credentials of a provider is not used, because its secret is absent or empty.
    #[error(
        "provider `{provider}` does not use the credential `{name}`, because the credential has no secret ({secret}); set the secret"
    )]
    CredentialLacking {
        /// The provider's name in the configuration.
        provider: String,
        /// The credential's name.
        name: String,
        /// The reference to the secret, and whether the secret is absent or empty.
        secret: MissingSecret,
    },
    /// The operator's price list contains a price that no model uses.
    #[error(
        "{file}:{line}: the price `{name}`{} is not used by any model: check its name",
        provider.as_ref().map(|provider| format!(" for provider `{provider}`")).unwrap_or_default()
    )]
    PriceUnused {
        /// The price list's file name.
        file: String,
        /// The line of the price's `[[price]]` entry, counted from 1.
        line: usize,
        /// The name of the unused price.
        name: String,
        /// The provider to which the price applies; `None` if it applies to all providers.
        provider: Option<String>,
    },
    /// The provider is off because weir.toml disables it.
    #[error("provider `{provider}` is off and its models are not listed, because weir.toml disables the provider")]
    Disabled {
        /// The provider's name in the configuration.
        provider: String,
    },
}

impl CatalogueWarning {
    /// Whether the warning only reports that a provider is off, which is not an error.
    pub(crate) fn is_provider_off(&self) -> bool {
        match self {
            Self::SecretLacking { .. } | Self::Disabled { .. } => true,
            Self::CredentialLacking { .. } | Self::PriceUnused { .. } => false,
        }
    }
}

impl Catalogue {
    /// Returns the names of the models that have another price than in `before`, although the version of the price list is the
    /// same. Charges at the old price cannot be recomputed, because this version now contains the new price.
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

    /// Returns the model with this public name, even if all its providers are off.
    pub(crate) fn find(&self, model: &str) -> Option<&Arc<Model>> {
        self.models.get(model)
    }

    /// Returns the model with this public name or alias, even if all its providers are off.
    pub(crate) fn find_name_or_alias(&self, name: &str) -> Option<&Arc<Model>> {
        self.models
            .get(name)
            .or_else(|| self.models.get(self.aliases.get(name)?))
    }

    /// Returns the model for the requested name `asked`; `None` if no model serves this name. First looks for a model with this
    /// public name or alias. If there is none, removes a context-window mark or snapshot date from `asked` and looks again. If
    /// there is still none, uses the fallback that a provider file defines for names of this family.
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

    /// Returns the models for which at least one provider is on, sorted by name.
    pub(crate) fn served_models(&self) -> impl Iterator<Item = &Arc<Model>> {
        self.models.values().filter(|model| model.is_on())
    }

    /// Returns the model for which `usage` is most expensive at the provider, with its price there. `None` if no model has a
    /// price there.
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

    /// Whether at least one provider that is on returns errors in a form other than that of this protocol.
    pub(crate) fn has_own_error_forms(&self, protocol: Protocol) -> bool {
        let mut on = self.providers.iter().filter(|provider| provider.is_on());
        on.any(|provider| provider.error_form(protocol) != protocol.into())
    }

    /// Returns all providers, on or off, in the order of their files.
    pub(crate) fn providers(&self) -> impl Iterator<Item = &Arc<Provider>> {
        self.providers.iter()
    }
}

/// Returns the model's price at each of `providers` that is on, by the provider's name.
///
/// # Errors
/// The model has both `price` and `free = true`, or no price for a provider that is on. The message contains the setting to
/// write, and the most similar name in the price list.
fn prices(
    raw: &RawModel,
    providers: &[Arc<Provider>],
    list: &PriceList,
) -> Result<BTreeMap<String, Arc<Price>>, String> {
    if raw.free && raw.price.is_some() {
        return Err(format!(
            "model `{}`: give either `price` or `free = true`, not both",
            raw.name
        ));
    }
    let name = price_name(raw);
    let free = raw.free.then(|| Arc::new(Price::free()));
    let mut prices = BTreeMap::new();
    let mut without = Vec::new();
    for provider in providers.iter().filter(|provider| provider.is_on()) {
        match free.as_ref().or_else(|| list.find(name, &provider.name)) {
            Some(price) => {
                prices.insert(provider.name.clone(), Arc::clone(price));
            }
            None => without.push(format!("`{}`", provider.name)),
        }
    }
    if without.is_empty() {
        return Ok(prices);
    }
    let near = raw
        .price
        .as_ref()
        .map(|name| suggestion(name, list.iter().map(|(name, ..)| name)));
    Err(format!(
        "model `{}` has no price at {}: add a [[price]] with name = \"{name}\" to the file of `[prices] file`, or \
         `free = true` to the [[model]]{}",
        raw.name,
        without.join(", "),
        near.unwrap_or_default()
    ))
}

/// Returns the name of a model's price in the price list: the model's setting `price`, or else the model's name.
fn price_name(raw: &RawModel) -> &str {
    raw.price.as_ref().unwrap_or(&raw.name)
}

impl Catalogue {
    /// Returns the models that `provider` may run for `name`. `name` is a model name that a request body contains and that weir
    /// forwards unchanged. The result contains the models whose name at the provider is `name`, with or without its
    /// context-window mark or snapshot date.
    pub(crate) fn models_run_as<'a>(
        &'a self,
        provider: &'a str,
        name: &'a str,
    ) -> impl Iterator<Item = &'a Arc<Model>> {
        let is_meant = move |model: &&Arc<Model>| {
            let upstream = model.upstream_name_by(provider);
            let is_served = model.providers.iter().any(|served| served.name == provider);
            is_served && operation::name_candidates(name).any(|name| name == upstream)
        };
        self.models.values().filter(is_meant)
    }

    /// Returns the model to which a provider refers as `name` in its answers, with the model's price there. `name` may be the
    /// model's name at the provider, its public name or an alias, each with or without a date at the end. `None` if no model with
    /// a price there has this name.
    pub(crate) fn find_served(&self, provider: &str, name: &str) -> Option<(&Arc<Model>, &Arc<Price>)> {
        let undated = operation::without_date(name);
        let is_called = |model: &Model, name: &str| {
            let upstream = model.upstream_name_by(provider);
            upstream == name || model.name == name || model.aliases.iter().any(|alias| alias == name)
        };
        let mut found: Option<(&Arc<Model>, &Arc<Price>)> = None;
        for model in self.models.values() {
            let Some(price) = model.prices.get(provider) else {
                continue;
            };
            if is_called(model, name) {
                return Some((model, price));
            }
            if found.is_none() && is_called(model, undated) {
                found = Some((model, price));
            }
        }
        found
    }
}

/// Returns a warning for each price in the operator's price list that no model uses, not even a model that is off. The name of
/// such a price is probably misspelled.
fn unused_prices(list: &PriceList, models: &BTreeMap<String, Arc<Model>>) -> Vec<CatalogueWarning> {
    let named = |model: &&Arc<Model>, name: &str| !model.free && model.price == name;
    let mut warnings = Vec::new();
    for (name, provider, entry) in list.iter().filter(|(.., entry)| entry.file != SHIPPED_FILE) {
        let mut models = models.values().filter(|model| named(model, name));
        let used = models
            .any(|model| provider.is_none_or(|only| model.providers.iter().any(|provider| provider.name == only)));
        if !used {
            warnings.push(CatalogueWarning::PriceUnused {
                file: entry.file.clone(),
                line: entry.line,
                name: name.to_owned(),
                provider: provider.map(str::to_owned),
            });
        }
    }
    warnings
}
