//! The price of one model at one provider, in one version.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::domain::{
    ledger::consumption::PriceModifiers,
    money::{
        NanoUsd,
        price::{
            counted::{ExactSum, PriceLine},
            tariff::Tariff,
        },
    },
    wire::usage::Usage,
};

/// The price version of free models.
pub(crate) const FREE_VERSION: &str = "free";

/// The prices of one model at one provider, in one version. Fixed for a request at its admission.
///
/// In JSON: the version and, unless it is free, the price list's entry with every fallback filled in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Price {
    /// The version of the prices, which every charge records.
    version: Arc<str>,
    /// `None` if the model is free.
    #[serde(flatten)]
    tariff: Option<Tariff>,
}

impl Price {
    /// The price of a model that is marked free.
    pub(crate) fn free() -> Self {
        Self {
            version: FREE_VERSION.into(),
            tariff: None,
        }
    }

    /// The price of one entry, at its list's version.
    pub(crate) fn new(version: Arc<str>, tariff: Tariff) -> Self {
        Self {
            version,
            tariff: Some(tariff),
        }
    }

    /// The price list's entry; `None` if the model is free.
    pub(crate) fn tariff(&self) -> Option<&Tariff> {
        self.tariff.as_ref()
    }

    /// The version of the prices, which every charge records.
    pub(crate) fn version(&self) -> &str {
        &self.version
    }

    /// The cost of a request: the sum in pico-USD, rounded up once to whole nano-USD. From 0 to [`NanoUsd::MAX`]; 0 if
    /// nothing was consumed. The same usage and modifiers always give the same cost.
    pub(crate) fn cost(&self, usage: &Usage, modifiers: &PriceModifiers) -> NanoUsd {
        let tariff = self.tariff.as_ref().filter(|_| *usage != Usage::default());
        tariff.map_or(NanoUsd::ZERO, |tariff| tariff.cost(usage, modifiers))
    }

    /// The maximum cost of a request whose tokens of sound and images are unknown.
    pub(crate) fn maximum_cost(&self, usage: &Usage, modifiers: &PriceModifiers) -> NanoUsd {
        let tariff = self.tariff.as_ref();
        let dearest = tariff.map(|tariff| tariff.in_most_expensive_modality(usage, modifiers));
        self.cost(dearest.as_ref().unwrap_or(usage), modifiers)
    }

    /// The exact cost of tokens and calls.
    pub(crate) fn sum(&self, usage: &Usage, modifiers: &PriceModifiers) -> ExactSum {
        let tariff = self.tariff.as_ref().filter(|_| *usage != Usage::default());
        tariff.map(|tariff| tariff.sum(usage, modifiers)).unwrap_or_default()
    }

    /// The fee per request; zero if nothing was consumed.
    pub(crate) fn request_fee(&self, usage: &Usage) -> ExactSum {
        let tariff = self.tariff.as_ref().filter(|_| *usage != Usage::default());
        tariff.map(Tariff::request_fee).unwrap_or_default()
    }

    /// The prompt size above which the applicable tier begins; 0 if there is one tier only.
    pub(crate) fn tier_above(&self, usage: &Usage, modifiers: &PriceModifiers) -> u64 {
        let tariff = self.tariff.as_ref();
        tariff.map_or(0, |tariff| tariff.tier_above(usage, modifiers))
    }

    pub(crate) fn sum_in_tier(&self, usage: &Usage, modifiers: &PriceModifiers, above_input_tokens: u64) -> ExactSum {
        let tariff = self.tariff.as_ref();
        tariff
            .map(|tariff| tariff.sum_in_tier(usage, modifiers, above_input_tokens))
            .unwrap_or_default()
    }

    /// The lines of the sum of tokens and calls in the tier that begins above this many input tokens; none for a free model.
    pub(crate) fn lines_in_tier(
        &self,
        usage: &Usage,
        modifiers: &PriceModifiers,
        above_input_tokens: u64,
    ) -> Vec<PriceLine> {
        let tariff = self.tariff.as_ref();
        let counted = tariff.and_then(|tariff| tariff.priced_counts(usage, modifiers, above_input_tokens));
        counted.map(|counted| counted.lines()).unwrap_or_default()
    }

    /// The line of the request fee; `None` without a fee or if nothing was consumed.
    pub(crate) fn fee_line(&self, usage: &Usage) -> Option<PriceLine> {
        let tariff = self.tariff.as_ref().filter(|_| *usage != Usage::default())?;
        let fee = tariff.per_call.request;
        (fee.pico_usd() > 0).then(|| PriceLine::of_calls("request", 1, fee))
    }
}
