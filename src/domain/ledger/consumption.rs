//! The consumption log: one row per billed request, and the lines of its charge.

pub(crate) mod row_json;

use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

pub(crate) use crate::domain::money::price::CostShare;
pub use crate::domain::wire::usage::{PriceModifiers, UsageSource};
use crate::domain::{keys::key::KeyId, ledger::tag::Tag, money::NanoUsd, wire::usage::Usage};

/// The number of days for which rows are kept.
pub(crate) const RETENTION_DAYS: u32 = 180;

/// The outcome in the row of a request that was running when weir crashed.
pub(crate) const CRASH: &str = "crash";

/// One billed request. With the prices of `price_version`, its cost can be recomputed from its usage and modifiers, or from those
/// of its parts if it has any.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    /// When the request ended, in milliseconds since the Unix epoch.
    pub time_ms: i64,
    /// When it was admitted by the store's clock, in milliseconds since the Unix epoch. Determines its quota periods.
    pub admitted_ms: i64,
    /// weir's request id.
    pub request_id: SmolStr,
    /// The account that paid.
    pub account: SmolStr,
    /// The key of the request.
    pub key_id: KeyId,
    /// The wire protocol: `messages`, `responses`, `gemini`.
    pub protocol: SmolStr,
    /// The model's name as the client sent it, if it is plausible as a model's name.
    pub model_asked: SmolStr,
    /// The catalogue model that served, at whose price it was charged.
    pub model: SmolStr,
    /// The provider that served.
    pub provider: SmolStr,
    /// The final status: the one that the client got, or 502 or 504 where a stream failed after its 200.
    pub status: u16,
    /// How it ended: [`crate::domain::faults::end::End::label`], or [`CRASH`] if weir crashed.
    pub outcome: SmolStr,
    /// Whether the answer was a stream.
    pub stream: bool,
    /// The tags to which the client attributes it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<Tag>,
    /// Its consumption, over all its parts.
    #[serde(flatten)]
    pub usage: Usage,
    /// Whether the usage was reported or estimated.
    pub usage_source: UsageSource,
    /// The consumption of each model, unless the requested model ran alone in one price tier.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<CostShare>,
    /// The modifiers of the price.
    #[serde(flatten)]
    pub modifiers: PriceModifiers,
    /// The version of the prices from which the charge was computed.
    pub price_version: SmolStr,
    /// The charge, in nano-USD.
    pub cost_nano_usd: NanoUsd,
    /// Milliseconds from the request's arrival to its end.
    pub latency_ms: u64,
    /// Milliseconds from the request's arrival to the first content; `None` without content.
    pub ttft_ms: Option<u64>,
    /// The hold at its admission, in nano-USD: in the store, from a lease of the node, or by grace. `None` in a row of an
    /// earlier version of weir.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold_nano_usd: Option<NanoUsd>,
    /// The number of attempts at providers. `None` if unknown: in a row of an earlier version of weir, and after a crash before
    /// the first checkpoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempts: Option<u32>,
}
