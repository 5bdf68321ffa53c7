//! The raw form of a price list, as the strict parser reads it.

use std::collections::BTreeMap;

use serde::{Deserialize, de::IgnoredAny};
use toml::Spanned;

/// One price list, with its numbers unparsed.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawList {
    pub(super) version: Spanned<String>,
    #[serde(default)]
    pub(super) price: Vec<Spanned<RawPrice>>,
}

/// `[[price]]`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawPrice {
    pub(super) name: Spanned<String>,
    pub(super) provider: Option<Spanned<String>>,
    #[serde(default)]
    pub(super) source: String,
    pub(super) tiers: Spanned<Vec<Spanned<RawTier>>>,
    pub(super) reasoning: Option<Spanned<RawDecimal>>,
    pub(super) tool_input: Option<Spanned<RawDecimal>>,
    #[serde(default)]
    pub(super) per_call: RawPerCall,
    #[serde(default)]
    pub(super) multipliers: RawMultipliers,
    #[serde(default)]
    pub(super) service_tier_prices: BTreeMap<String, Spanned<Vec<Spanned<RawTier>>>>,
}

/// One of `tiers`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawTier {
    #[serde(default)]
    pub(super) above_input_tokens: u64,
    pub(super) input: Spanned<RawDecimal>,
    pub(super) output: Spanned<RawDecimal>,
    pub(super) cache_read: Option<Spanned<RawDecimal>>,
    pub(super) cache_write_short: Option<Spanned<RawDecimal>>,
    pub(super) cache_write_long: Option<Spanned<RawDecimal>>,
    pub(super) input_audio: Option<Spanned<RawDecimal>>,
    pub(super) input_image: Option<Spanned<RawDecimal>>,
    pub(super) cache_read_audio: Option<Spanned<RawDecimal>>,
    pub(super) cache_read_image: Option<Spanned<RawDecimal>>,
    pub(super) output_audio: Option<Spanned<RawDecimal>>,
    pub(super) output_image: Option<Spanned<RawDecimal>>,
}

/// `per_call`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawPerCall {
    pub(super) web_search: Option<Spanned<RawDecimal>>,
    pub(super) web_fetch: Option<Spanned<RawDecimal>>,
    pub(super) file_search: Option<Spanned<RawDecimal>>,
    pub(super) code_interpreter: Option<Spanned<RawDecimal>>,
    pub(super) image_generation: Option<Spanned<RawDecimal>>,
    pub(super) request: Option<Spanned<RawDecimal>>,
}

/// `multipliers`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawMultipliers {
    pub(super) service_tier: BTreeMap<String, Spanned<RawDecimal>>,
    pub(super) speed: BTreeMap<String, Spanned<RawDecimal>>,
    pub(super) geo: BTreeMap<String, Spanned<RawDecimal>>,
}

/// A decimal number as text. Other values are accepted as well, so that the error can name the key and say what to write.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum RawDecimal {
    Text(String),
    Other(IgnoredAny),
}
