//! The consumption log: one row per billed request.

use serde::{Deserialize, Serialize};

use crate::domain::{
    key::KeyId,
    money::NanoUsd,
    usage::{RunKind, Usage, is_zero},
};

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

/// What one model consumed of a request that several worked on, or that is priced in several tiers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// What the model was run for.
    pub run: RunKind,
    /// The catalogue's name of the model, or the provider's where the catalogue has none.
    pub model: String,
    /// What it consumed, over all its runs.
    #[serde(flatten)]
    pub usage: Usage,
    /// The catalogue model at whose price it was charged, if it has none of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priced_as: Option<String>,
    /// The version of that price, if it is not the row's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price_version: Option<String>,
    /// Each run's prompt was of the tier that begins above so many input tokens.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub above_input_tokens: u64,
    /// Its share of the charge. The shares add up to it.
    pub cost_nano_usd: NanoUsd,
}

impl Modifiers {
    /// What changes the price of a run. An advisor has a service tier of its own, which the answer does not tell
    /// (<https://platform.claude.com/docs/en/agents-and-tools/tool-use/advisor-tool>, "Usage and billing"), and so with the
    /// speed; where the request is served holds for all of it.
    #[must_use]
    pub fn of_run(&self, run: RunKind) -> Self {
        match run {
            RunKind::Answer | RunKind::Fallback | RunKind::Compaction => self.clone(),
            RunKind::Advisor => Self {
                geo: self.geo.clone(),
                ..Self::default()
            },
        }
    }
}

/// One billed request. With the prices of `price_version`, its cost can be computed again from its usage and modifiers, or,
/// where it has parts, from theirs (see [`crate::domain::price::recomputed`]).
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
    /// What it consumed, over all its parts.
    #[serde(flatten)]
    pub usage: Usage,
    /// Where those figures come from.
    pub usage_source: UsageSource,
    /// What each model consumed, where it was not the model asked for alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<Part>,
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
