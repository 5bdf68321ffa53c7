//! Questions about providers and their models.

use std::{collections::BTreeMap, sync::Arc};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::question;
use crate::domain::{money::price::Price, wire::Protocol};

/// Lists the served models. A model whose providers are all switched off is left out.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListModels {}

question!(ListModels => ModelList: GET "/v1/models", Viewer);

/// The served models.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub(crate) struct ModelList {
    /// The models, in the order of their names.
    pub(crate) models: Vec<ModelView>,
}

/// A model.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub(crate) struct ModelView {
    /// The public name.
    pub(crate) name: String,
    /// The human-readable name.
    pub(crate) display_name: String,
    /// Other names that clients may request.
    pub(crate) aliases: Vec<String>,
    /// The preferred provider.
    pub(crate) provider: String,
    /// Its providers, the preferred one first.
    pub(crate) providers: Vec<String>,
    /// The protocols in which it is served.
    pub(crate) protocols: Vec<Protocol>,
    /// The maximum number of input tokens, if known.
    pub(crate) context_tokens: Option<u64>,
    /// Its prices by provider.
    pub(crate) prices: BTreeMap<String, Arc<Price>>,
}

/// Lists all providers, whether they are on or off.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListProviders {}

question!(ListProviders => ProviderList: GET "/v1/providers", Viewer);

/// The providers.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct ProviderList {
    /// The providers, in the order of their names.
    pub(crate) providers: Vec<ProviderView>,
}

/// A provider.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct ProviderView {
    /// The name in the configuration.
    pub(crate) name: String,
    /// The human-readable name.
    pub(crate) display_name: String,
    /// Whether the configuration has it on and one of its secrets is available.
    pub(crate) configured: bool,
    /// Why it is off by its configuration; null if it is not.
    pub(crate) why_off: Option<String>,
    /// False if an operator has switched it off.
    pub(crate) enabled: bool,
    /// Its credentials, with their cooldowns.
    pub(crate) credentials: Vec<CredentialView>,
    /// The number of addresses that are skipped after consecutive failures.
    pub(crate) places_ejected: usize,
    /// Its addresses, in their order; empty until its names are resolved.
    pub(crate) places: Vec<PlaceView>,
    /// Its hosts without a known address.
    pub(crate) unresolved: Vec<String>,
    /// Models for which the provider is skipped after consecutive failures.
    pub(crate) passed_over: Vec<PassedOverView>,
}

/// A credential of a provider, without the secret.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct CredentialView {
    /// Its name in the configuration.
    pub(crate) name: String,
    /// Seconds until its cooldown ends; 0 if it is in use.
    pub(crate) rests_seconds: u64,
}

/// An address of a provider.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub(crate) struct PlaceView {
    /// The address and its port.
    pub(crate) address: String,
    /// Scheme, host and port as configured.
    pub(crate) origin: String,
    /// Seconds until it is tried again after consecutive failures; 0 if it is in use.
    pub(crate) ejected_seconds: u64,
}

/// A model for which a provider is skipped now.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct PassedOverView {
    /// The provider's name for the model.
    pub(crate) model: String,
    /// Seconds until a request may probe it.
    pub(crate) asked_again_seconds: u64,
}

/// Switches a provider on: this node sends requests to it again.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct EnableProvider {
    /// Its name in the configuration.
    pub(crate) name: String,
}

question!(EnableProvider => SwitchedProvider: POST "/v1/providers/{name}/enable", Operator);

/// Switches a provider off: this node sends no further requests to it. Running requests continue.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct DisableProvider {
    /// Its name in the configuration.
    pub(crate) name: String,
}

question!(DisableProvider => SwitchedProvider: POST "/v1/providers/{name}/disable", Operator);

/// A provider's switch on this node.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct SwitchedProvider {
    /// The provider's name.
    pub(crate) provider: String,
    /// Whether it is on now.
    pub(crate) enabled: bool,
    /// Whether this call changed it.
    pub(crate) changed: bool,
}
