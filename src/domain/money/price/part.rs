//! One model's share of a request's charge.

use serde::{Deserialize, Serialize};

use crate::domain::{
    money::NanoUsd,
    wire::usage::{RunKind, Usage, is_zero},
};

/// The share of one model, purpose and price tier in a request to which several contributed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CostShare {
    /// The purpose of the run.
    pub run: RunKind,
    /// The catalogue's name of the model, or the provider's if the catalogue has none.
    pub model: String,
    /// Its consumption, over all its runs.
    #[serde(flatten)]
    pub usage: Usage,
    /// The catalogue model at whose price it was charged, if it has no price of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priced_as: Option<String>,
    /// The version of that price, if it differs from the row's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price_version: Option<String>,
    /// The price tier: the one for prompts with more input tokens than this.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub above_input_tokens: u64,
    /// Its share of the charge. The shares add up to it.
    pub cost_nano_usd: NanoUsd,
}
