//! The models and providers that are served, as the API shows and switches them.

use std::{collections::BTreeMap, sync::Arc};

use serde::Serialize;

use crate::domain::money::price::Price;

/// A model as the API shows it.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ModelView {
    /// The public name.
    pub name: String,
    /// The human-readable name.
    pub display_name: String,
    /// Other names that clients may request.
    pub aliases: Vec<String>,
    /// The preferred provider.
    pub provider: String,
    /// Its providers, the preferred one first.
    pub providers: Vec<String>,
    /// The protocols in which it is served.
    pub protocols: Vec<&'static str>,
    /// The most input tokens, if known.
    pub context_tokens: Option<u64>,
    /// Its prices by provider.
    pub prices: BTreeMap<String, Arc<Price>>,
}

/// A provider as the API shows it.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ProviderView {
    /// The name in the configuration.
    pub name: String,
    /// The human-readable name.
    pub display_name: String,
    /// Whether the configuration has it on and a secret of it is there.
    pub configured: bool,
    /// Why the configuration has it off; `None` where it is on.
    pub why_off: Option<String>,
    /// Whether no operator has switched it off.
    pub enabled: bool,
    /// Its credentials, with their rests.
    pub credentials: Vec<CredentialView>,
    /// The number of addresses ejected after failures in a row.
    pub places_ejected: usize,
    /// Its addresses, in their order; none before its names are resolved.
    pub places: Vec<PlaceView>,
    /// Its hosts of which no address is known.
    pub unresolved: Vec<String>,
    /// Models that are requested from other providers, after failures in a row.
    pub passed_over: Vec<PassedOverView>,
}

/// An address of a provider.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(crate) struct PlaceView {
    /// The address and its port.
    pub address: String,
    /// Scheme, host and port as the configuration has them.
    pub origin: String,
    /// Seconds until it is asked again after failures in a row; 0 if it is in use.
    pub ejected_seconds: u64,
}

/// A model that a provider is not asked for now.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct PassedOverView {
    /// The provider's name for the model.
    pub model: String,
    /// Seconds until a request may probe it.
    pub asked_again_seconds: u64,
}

/// A credential as the API shows it: never the secret.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct CredentialView {
    pub name: String,
    /// Seconds until the credential's rest ends; 0 if it is in use.
    pub rests_seconds: u64,
}

/// What is served now, and the switches of its providers.
pub(crate) trait Providers: Send + Sync {
    /// The models that are served now, without those whose providers are all switched off.
    fn models(&self) -> Vec<ModelView>;
    /// The public name of the model that a name or an alias means, served now or not.
    ///
    /// # Errors
    /// There is none; with the nearest name there is, if one is near.
    fn model_named(&self, name: &str) -> Result<String, Option<String>>;
    /// The price in force of a model at a provider, by its public name; `None` if that provider does not have that model.
    fn price(&self, provider: &str, model: &str) -> Option<Arc<Price>>;
    /// All providers, on or off.
    fn providers(&self) -> Vec<ProviderView>;
    /// Switches a provider on or off; true when that changed anything.
    ///
    /// # Errors
    /// The switch cannot be written down; then nothing has changed.
    fn switch(&self, provider: &str, on: bool) -> std::io::Result<bool>;
}
