//! The parts of this process that the admin API asks for what is not in a store.

use std::sync::Arc;

use async_trait::async_trait;

use super::peer::Peer;
use crate::{
    api::{
        node::Upgraded,
        providers::{ModelView, ProviderView},
        sessions::ConsoleLink,
    },
    domain::{money::price::Price, role::Role},
};

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

/// Makes links into the console.
pub(crate) trait ConsoleLinks: Send + Sync {
    /// A link that opens a session of `opener` with this role once, soon.
    ///
    /// # Errors
    /// Why there is no console.
    fn issue(&self, opener: &Peer, role: Role) -> Result<ConsoleLink, String>;
}

/// Starts the process that takes this one's place.
#[async_trait]
pub(crate) trait Upgrades: Send + Sync {
    /// Returns when the next process serves. It goes on also when nobody waits for it.
    ///
    /// # Errors
    /// Why it does not come up: this process goes on serving.
    async fn upgrade(self: Arc<Self>) -> Result<Upgraded, String>;
}
