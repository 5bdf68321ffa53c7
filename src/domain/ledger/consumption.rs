//! The consumption log: one row per billed request.

pub(crate) mod row_json;

use serde::{Deserialize, Serialize};
use smol_str::SmolStr;

pub(crate) use crate::domain::money::price::Part;
pub use crate::domain::wire::usage::{Modifiers, UsageSource};
use crate::domain::{keys::key::KeyId, ledger::tag::Tag, money::NanoUsd, wire::usage::Usage};

/// How many days rows are kept.
pub(crate) const RETENTION_DAYS: u32 = 180;

/// The outcome in the row of a request that was running when weir crashed.
pub(crate) const CRASH: &str = "crash";

/// One billed request. With the prices of `price_version`, its cost can be computed again from its usage and modifiers, or,
/// where it has parts, from theirs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    /// When the request ended, in milliseconds since the Unix epoch.
    pub time_ms: i64,
    /// When it was admitted by the store's clock, in milliseconds since the Unix epoch. Decides its quota periods.
    pub admitted_ms: i64,
    /// weir's request id.
    pub request_id: SmolStr,
    /// The account that paid.
    pub account: SmolStr,
    /// The key of the request.
    pub key_id: KeyId,
    /// The wire protocol: `messages`, `responses`, `gemini`.
    pub protocol: SmolStr,
    /// The model's name as the client gave it, if it is plausible as one.
    pub model_asked: SmolStr,
    /// The catalogue model that served, at whose price it was charged.
    pub model: SmolStr,
    /// The provider that served.
    pub provider: SmolStr,
    /// The final status: what the client got, or what stands for it where a stream failed after its 200 (502, 504).
    pub status: u16,
    /// How it ended: [`crate::domain::faults::end::End::label`], or `crash` if weir crashed.
    pub outcome: SmolStr,
    /// The answer was a stream.
    pub stream: bool,
    /// What the client attributes it to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<Tag>,
    /// What it consumed, over all its parts.
    #[serde(flatten)]
    pub usage: Usage,
    /// Whether the usage was reported or estimated.
    pub usage_source: UsageSource,
    /// What each model consumed, unless the requested model ran alone in one price tier.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<Part>,
    /// What modified the price.
    #[serde(flatten)]
    pub modifiers: Modifiers,
    /// The version of the prices that the charge was computed with.
    pub price_version: SmolStr,
    /// The charge, in nano-USD.
    pub cost_nano_usd: NanoUsd,
    /// Milliseconds from the request's arrival to its end.
    pub latency_ms: u64,
    /// Milliseconds from the request's arrival to the first content; `None` if there was none.
    pub ttft_ms: Option<u64>,
    /// What was held for it at its admission, in nano-USD: in the store, out of a lease of this node, or by its grace. `None`
    /// in a row of an earlier weir.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold_nano_usd: Option<NanoUsd>,
    /// How many attempts at providers were made for it. `None` if nobody knows: in a row of an earlier weir, and after a crash
    /// that came before a checkpoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempts: Option<u32>,
}
