//! What a model costs: integer pico-USD per token and per call, summed exactly, rounded once.

mod decimal;
mod list;
mod parts;
mod raw;
mod read;
mod tariff;

use std::sync::Arc;

use serde::Serialize;

pub use decimal::{DecimalError, Factor, PerCall, PerToken};
pub use list::{PriceEntry, PriceList, SHIPPED_FILE};
pub use parts::{Charge, OtherModel, PARTS_MAX, PricedRun, charge, recomputed};
pub use tariff::{Exact, Multipliers, PerCallPrices, Tariff, Tier};

use crate::domain::{consumption::Modifiers, money::NanoUsd, usage::Usage};

/// The version of what is free.
pub const FREE_VERSION: &str = "free";

/// The prices of one model at one provider, at one version. Fixed for a request when it is admitted.
///
/// In JSON the version and, unless it is free, what the price list says, with every fallback filled in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Price {
    version: Arc<str>,
    /// `None`: it costs nothing.
    #[serde(flatten)]
    tariff: Option<Tariff>,
}

impl Price {
    /// What a model costs that is marked free: nothing.
    pub fn free() -> Self {
        Self {
            version: FREE_VERSION.into(),
            tariff: None,
        }
    }

    /// What a price list says, at the list's version.
    pub fn new(version: Arc<str>, tariff: Tariff) -> Self {
        Self {
            version,
            tariff: Some(tariff),
        }
    }

    /// The version of the prices, as every charge carries it.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// What a request costs: the sum in pico-USD, rounded up to the next nano-USD once; 0 to [`NanoUsd::MAX`], and 0 when
    /// nothing was consumed. The same usage and modifiers give the same cost at any time.
    pub fn cost(&self, usage: &Usage, modifiers: &Modifiers) -> NanoUsd {
        let sum = self.sum(usage, modifiers);
        sum.plus(self.request_fee(usage)).rounded_up()
    }

    /// What tokens and calls cost, exactly.
    pub fn sum(&self, usage: &Usage, modifiers: &Modifiers) -> Exact {
        let tariff = self.tariff.as_ref().filter(|_| *usage != Usage::default());
        tariff.map(|tariff| tariff.sum(usage, modifiers)).unwrap_or_default()
    }

    /// What a request costs once, whatever it consumed, unless that was nothing.
    fn request_fee(&self, usage: &Usage) -> Exact {
        let tariff = self.tariff.as_ref().filter(|_| *usage != Usage::default());
        tariff.map(Tariff::request_fee).unwrap_or_default()
    }

    /// From which size of the prompt on the tier holds that prices this one; 0 where there is one tier.
    fn tier_above(&self, usage: &Usage, modifiers: &Modifiers) -> u64 {
        let tariff = self.tariff.as_ref();
        tariff.map_or(0, |tariff| tariff.tier_above(usage, modifiers))
    }

    fn sum_in_tier(&self, usage: &Usage, modifiers: &Modifiers, above_input_tokens: u64) -> Exact {
        let tariff = self.tariff.as_ref();
        tariff
            .map(|tariff| tariff.sum_in_tier(usage, modifiers, above_input_tokens))
            .unwrap_or_default()
    }
}

#[cfg(test)]
mod tests;
