//! The models weir serves and the providers behind them.

use std::collections::BTreeMap;

pub mod secret_ref;

pub use crate::domain::rules::RawModel;
pub use secret_ref::{SecretRef, SecretRefError};

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
