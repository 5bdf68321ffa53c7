//! Questions about providers, and the models that they serve.

use std::{collections::BTreeMap, sync::Arc};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::question;
use crate::domain::{money::price::Price, wire::Protocol};

/// Lists the models that are served now, without those whose providers are all switched off.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListModels {}

question!(ListModels => ModelList: GET "/v1/models", Viewer);

/// The models that are served.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub(crate) struct ModelList {
    /// The models, by their names.
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
    /// The most input tokens, if known.
    pub(crate) context_tokens: Option<u64>,
    /// Its prices by provider.
    pub(crate) prices: BTreeMap<String, Arc<Price>>,
}

/// Lists all providers, on or off.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListProviders {}

question!(ListProviders => ProviderList: GET "/v1/providers", Viewer);

/// The providers.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct ProviderList {
    /// The providers, by their names.
    pub(crate) providers: Vec<ProviderView>,
}

/// A provider.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct ProviderView {
    /// The name in the configuration.
    pub(crate) name: String,
    /// The human-readable name.
    pub(crate) display_name: String,
    /// Whether the configuration has it on and a secret of it is there.
    pub(crate) configured: bool,
    /// Why the configuration has it off; null where it is on.
    pub(crate) why_off: Option<String>,
    /// Whether no operator has switched it off.
    pub(crate) enabled: bool,
    /// Its credentials, with their rests.
    pub(crate) credentials: Vec<CredentialView>,
    /// The number of addresses ejected after failures in a row.
    pub(crate) places_ejected: usize,
    /// Its addresses, in their order; none before its names are resolved.
    pub(crate) places: Vec<PlaceView>,
    /// Its hosts of which no address is known.
    pub(crate) unresolved: Vec<String>,
    /// Models that are requested from other providers, after failures in a row.
    pub(crate) passed_over: Vec<PassedOverView>,
}

/// A credential of a provider: never the secret.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct CredentialView {
    /// Its name in the configuration.
    pub(crate) name: String,
    /// Seconds until its rest ends; 0 if it is in use.
    pub(crate) rests_seconds: u64,
}

/// An address of a provider.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub(crate) struct PlaceView {
    /// The address and its port.
    pub(crate) address: String,
    /// Scheme, host and port as the configuration has them.
    pub(crate) origin: String,
    /// Seconds until it is asked again after failures in a row; 0 if it is in use.
    pub(crate) ejected_seconds: u64,
}

/// A model that a provider is not asked for now.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct PassedOverView {
    /// The provider's name for the model.
    pub(crate) model: String,
    /// Seconds until a request may probe it.
    pub(crate) asked_again_seconds: u64,
}

/// Sends requests to a provider again, from this node.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct EnableProvider {
    /// Its name in the configuration.
    pub(crate) name: String,
}

question!(EnableProvider => SwitchedProvider: POST "/v1/providers/{name}/enable", Operator);

/// Sends nothing more to a provider from this node; requests that run go on.
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
    /// Whether it was off before where it is on now, or on where it is off.
    pub(crate) changed: bool,
}
