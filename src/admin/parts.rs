//! What the admin API needs from other parts of this process.

use std::sync::Arc;

use async_trait::async_trait;

use super::peer::AdminPeer;
use crate::{
    api::{
        node::UpgradedProcess,
        providers::{ModelView, ProviderView},
        sessions::ConsoleLink,
    },
    domain::{money::price::Price, role::Role},
};

/// The served models and the providers, with their switches.
pub(crate) trait ProviderDirectory: Send + Sync {
    /// The served models. A model whose providers are all switched off is left out.
    fn models(&self) -> Vec<ModelView>;
    /// The public name of the model with this name or alias, whether it is served now or not.
    ///
    /// # Errors
    /// No model has it. Contains the most similar name, if one is similar enough.
    fn model_named(&self, name: &str) -> Result<String, Option<String>>;
    /// The current price of a model at a provider, by the model's public name; `None` if the provider does not have the model.
    fn price(&self, provider: &str, model: &str) -> Option<Arc<Price>>;
    /// All providers, whether they are on or off.
    fn providers(&self) -> Vec<ProviderView>;
    /// Switches a provider on or off. Returns whether that changed anything.
    ///
    /// # Errors
    /// The switch cannot be saved, and nothing has changed.
    fn switch(&self, provider: &str, on: bool) -> std::io::Result<bool>;
}

/// Makes links that open a session in the console.
pub(crate) trait ConsoleLinks: Send + Sync {
    /// A link that opens one session of `opener` with this role, within a minute.
    ///
    /// # Errors
    /// Why no link can be made.
    fn issue(&self, opener: &AdminPeer, role: Role) -> Result<ConsoleLink, String>;
}

/// Starts the successor of this process.
#[async_trait]
pub(crate) trait Upgrades: Send + Sync {
    /// Returns when the successor serves. The upgrade continues even if the caller stops waiting.
    ///
    /// # Errors
    /// Why the successor does not start. This process continues to serve.
    async fn upgrade(self: Arc<Self>) -> Result<UpgradedProcess, String>;
}
