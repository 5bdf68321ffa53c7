//! The models weir serves and the providers behind them: compiled once from provider files and weir.toml, then only
//! read.

mod build;
pub mod secret_ref;

use std::{collections::BTreeMap, sync::Arc};

pub use crate::domain::rules::RawModel;
use crate::domain::{
    operation::Operation,
    protocol::Protocol,
    rules::{Provider, RuleFile},
    secret::Secret,
    strict_toml::FileError,
};
pub use secret_ref::{SecretRef, SecretRefError};

/// All models and providers. Share it in an `Arc`.
#[derive(Debug, Default)]
pub struct Catalogue {
    models: BTreeMap<String, Arc<Model>>,
    providers: Vec<Arc<Provider>>,
}

/// One model as clients see it.
#[derive(Debug)]
pub struct Model {
    /// The public name: what clients ask for, and the label in logs and metrics.
    pub name: String,
    /// The name for people.
    pub display_name: String,
    /// What its providers call it.
    pub upstream_name: String,
    /// Its providers, the preferred one first; never empty.
    pub providers: Vec<Arc<Provider>>,
    /// The protocols it may be asked through.
    pub protocols: Vec<Protocol>,
    /// Input tokens that it takes, if known.
    pub context_tokens: Option<u64>,
    /// Output tokens that it gives, if known.
    pub output_tokens: Option<u64>,
    /// The name of its price.
    pub price: Option<String>,
    /// Whether it costs nothing.
    pub free: bool,
    /// When it appeared, in seconds since the epoch; 0 if its file does not say.
    pub created_unix: i64,
}

impl Model {
    /// The provider that serves an operation: the first that is on and has the endpoint.
    pub fn provider_for(&self, operation: Operation) -> Option<&Arc<Provider>> {
        let allowed = self.protocols.contains(&operation.protocol());
        self.providers
            .iter()
            .find(|provider| allowed && provider.is_on() && provider.endpoints.of(operation).is_some())
    }

    /// Whether it can be asked through a protocol now.
    pub fn serves(&self, protocol: Protocol) -> bool {
        let on = |provider: &Arc<Provider>| provider.is_on() && provider.protocols().contains(&protocol);
        self.protocols.contains(&protocol) && self.providers.iter().any(on)
    }

    /// Whether any of its providers is on.
    pub fn is_on(&self) -> bool {
        self.providers.iter().any(|provider| provider.is_on())
    }

    /// Who makes it, as far as weir knows: its preferred provider's name.
    pub fn owner(&self) -> &str {
        self.providers.first().map_or("", |provider| provider.name.as_str())
    }
}

/// What weir.toml says about the catalogue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CatalogueSettings {
    /// `[provider.NAME]`: changes to shipped and own provider files.
    pub overrides: BTreeMap<String, ProviderOverride>,
    /// `[[model]]`: models added, or put in the place of those with the same name.
    pub models: Vec<RawModel>,
}

/// `[provider.NAME]` of weir.toml.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProviderOverride {
    /// `scheme://host[:port]` in the place of that of every endpoint; the endpoints' paths stay.
    pub base_url: Option<String>,
    /// Another place of the secret.
    pub secret: Option<SecretRef>,
    /// `false` switches the provider off.
    pub enabled: Option<bool>,
}

/// What an operator should know, although weir can serve.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Warning {
    /// A provider's secret is not there.
    #[error("provider `{provider}` is off: its secret {secret} is absent, its models are not listed")]
    SecretAbsent {
        /// Which provider.
        provider: String,
        /// Where its secret was looked for.
        secret: SecretRef,
    },
    /// weir.toml switches a provider off.
    #[error("provider `{provider}` is off: weir.toml says so, its models are not listed")]
    Disabled {
        /// Which provider.
        provider: String,
    },
}

impl Catalogue {
    /// Compiles provider files and the settings of weir.toml. `secrets` looks a secret up: `Ok(None)` means that it is
    /// not there, which switches the provider off with a warning.
    ///
    /// # Errors
    /// All faults found: in files, in settings (reported as of `weir.toml`), in secrets that are there but unusable.
    pub fn build(
        files: &[RuleFile],
        settings: &CatalogueSettings,
        secrets: &dyn Fn(&SecretRef) -> Result<Option<Secret>, String>,
    ) -> Result<(Self, Vec<Warning>), Vec<FileError>> {
        build::build(files, settings, secrets)
    }

    /// The model of that public name, whether or not it can be served now.
    pub fn find(&self, model: &str) -> Option<&Arc<Model>> {
        self.models.get(model)
    }

    /// The models that can be served now, by name.
    pub fn models(&self) -> impl Iterator<Item = &Arc<Model>> {
        self.models.values().filter(|model| model.is_on())
    }

    /// All providers, on or off, in the order of their files.
    pub fn providers(&self) -> impl Iterator<Item = &Arc<Provider>> {
        self.providers.iter()
    }
}

#[cfg(test)]
pub(in crate::domain) mod tests;
