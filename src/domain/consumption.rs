//! The consumption log: one row per billed request.

use serde::{Deserialize, Serialize};

use crate::domain::{key::KeyId, money::NanoUsd, usage::Usage};

/// How long rows are kept.
pub const RETENTION_DAYS: u32 = 180;

/// Where the figures of a row come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UsageSource {
    /// The provider reported them at the end of its answer.
    Reported,
    /// The provider reported some of them before the answer broke off, or left some out of a whole one; the rest is
    /// estimated.
    Partial,
    /// Estimated from the text that passed.
    Estimated,
}

/// What makes a price differ from the listed one, as the provider's answer says.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Modifiers {
    /// The service tier, as the provider spells it: `flex`, `priority`, `batch`, `ON_DEMAND_PRIORITY`...
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_tier: Option<String>,
    /// The speed: `fast`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub speed: Option<String>,
    /// The geography of the inference: `us`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub geo: Option<String>,
}

/// One billed request. With the prices of `price_version`, its cost can be computed again from its usage and modifiers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    /// When the request ended, in milliseconds since the Unix epoch.
    pub time_ms: i64,
    /// When it was admitted, by the store's clock, in milliseconds since the Unix epoch: its quota period.
    pub admitted_ms: i64,
    /// weir's identifier of the request.
    pub request_id: String,
    /// The account that paid.
    pub account: String,
    /// The key it was asked with.
    pub key_id: KeyId,
    /// The wire protocol: `messages`, `responses`, `gemini`.
    pub protocol: String,
    /// The model's name as the client gave it, if it is a plausible one.
    pub model_asked: String,
    /// The catalogue model that served, at whose price it was charged.
    pub model: String,
    /// The provider that served.
    pub provider: String,
    /// The final status: what the client got, or what stands for it where a stream failed after its 200 (502, 504).
    pub status: u16,
    /// How it ended, [`crate::domain::outcome::Outcome::as_str`]; `crash` where weir died on it.
    pub outcome: String,
    /// Whether the answer was a stream.
    pub stream: bool,
    /// What it consumed.
    #[serde(flatten)]
    pub usage: Usage,
    /// Where those figures come from.
    pub usage_source: UsageSource,
    /// What changed the price.
    #[serde(flatten)]
    pub modifiers: Modifiers,
    /// The version of the prices.
    pub price_version: String,
    /// The charge.
    pub cost_nano_usd: NanoUsd,
    /// From the request's arrival to its end, in milliseconds.
    pub latency_ms: u64,
    /// From the request's arrival to the first content, in milliseconds; `None` if none came.
    pub ttft_ms: Option<u64>,
}
