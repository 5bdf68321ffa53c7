//! The prices of one model at one provider: an entry of a price list, together with the version of that list.

use std::{collections::BTreeMap, sync::Arc};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::domain::{
    ledger::consumption::PriceModifiers,
    money::{
        NanoUsd,
        price::{CallPrice, ExactSum, PriceFactor, PriceLine, PricedCounts, TokenPrice, nanos_of_pico},
    },
    wire::usage::Usage,
};

/// The prices of a model: one entry of a price list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Tariff {
    /// The name of the price, by which a model's `price` refers to it.
    pub name: String,
    /// The provider that the price is for. If it is missing, the price is for all providers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// The published source of the prices, as written in the price list.
    pub source: String,
    /// The tiers of token prices, sorted by the prompt size that each tier requires, the smallest size first. The first tier is
    /// for any prompt.
    pub tiers: Vec<Tier>,
    /// The price of a reasoning token. It applies together with `tiers`, but not with `service_tier_prices`. If it is missing,
    /// the price of an output token applies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<TokenPrice>,
    /// The price of an input token that the provider's own tools added. It applies together with `tiers`, but not with
    /// `service_tier_prices`. If it is missing, the price of an input token applies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_input: Option<TokenPrice>,
    /// The prices for calls of the provider's own tools, and the fee per request.
    pub per_call: PerCallPrices,
    /// Factors by which all token prices are multiplied.
    pub multipliers: Multipliers,
    /// Token prices for some service tiers, by the tier's name. They replace `tiers` and the multiplier of the service tier.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub service_tier_prices: BTreeMap<String, Vec<Tier>>,
}

/// Token prices, in USD per 1M tokens, for prompts above a certain size. The complete request is charged at the highest tier that
/// applies to the prompt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Tier {
    /// The number of input tokens, cached ones included, that a prompt must exceed for this tier to apply.
    pub above_input_tokens: u64,
    /// The price of an input token.
    pub input: TokenPrice,
    /// The price of an output token.
    pub output: TokenPrice,
    /// The price of an input token that is read from a cache.
    pub cache_read: TokenPrice,
    /// The price of an input token that is written to a short-lived cache.
    pub cache_write_short: TokenPrice,
    /// The price of an input token that is written to a long-lived cache.
    pub cache_write_long: TokenPrice,
    /// The price of an input token of audio.
    pub input_audio: TokenPrice,
    /// The price of an input token of images.
    pub input_image: TokenPrice,
    /// The price of an input token of audio that is read from a cache.
    pub cache_read_audio: TokenPrice,
    /// The price of an input token of images that is read from a cache.
    pub cache_read_image: TokenPrice,
    /// The price of an output token of audio.
    pub output_audio: TokenPrice,
    /// The price of an output token of images.
    pub output_image: TokenPrice,
}

/// Prices per call, in USD. Multipliers do not apply to them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct PerCallPrices {
    /// The price of a web search by the provider's own tool.
    pub web_search: CallPrice,
    /// The price of a page that the provider's own tool fetches.
    pub web_fetch: CallPrice,
    /// The price of a search in stored files by the provider's own tool.
    pub file_search: CallPrice,
    /// The price of a call of the provider's own code interpreter.
    pub code_interpreter: CallPrice,
    /// The price of a call of the provider's own image generation.
    pub image_generation: CallPrice,
    /// The fee per request. A request that consumed nothing has no fee.
    pub request: CallPrice,
}

/// Factors by which token prices are multiplied. Each factor is listed under the name of its service tier, speed or geography, as
/// this name occurs in the provider's answers. Upper and lower case are not distinguished. A name that is not listed has the
/// factor 1.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Multipliers {
    /// Factors by service tier.
    pub service_tier: BTreeMap<String, PriceFactor>,
    /// Factors by the speed of the answer.
    pub speed: BTreeMap<String, PriceFactor>,
    /// Factors by the geography of the inference.
    pub geo: BTreeMap<String, PriceFactor>,
}

impl Tier {
    /// Whether this tier has prices for audio or images that differ from those for text.
    fn has_modalities(&self) -> bool {
        [self.input_audio, self.input_image] != [self.input; 2]
            || [self.cache_read_audio, self.cache_read_image] != [self.cache_read; 2]
            || [self.output_audio, self.output_image] != [self.output; 2]
    }
}

impl Tariff {
    /// Returns the exact cost of tokens and calls in the tier that applies to the prompt's size.
    pub(crate) fn sum(&self, usage: &Usage, modifiers: &PriceModifiers) -> ExactSum {
        self.sum_in_tier(usage, modifiers, self.tier_above(usage, modifiers))
    }

    /// Returns the cost of a request that consumed something, rounded up once to whole nano-USD, at most [`NanoUsd::MAX`].
    pub(crate) fn cost(&self, usage: &Usage, modifiers: &PriceModifiers) -> NanoUsd {
        let counted = self.priced_counts(usage, modifiers, self.tier_above(usage, modifiers));
        let plain = counted.as_ref().and_then(PricedCounts::whole_pico_usd);
        match plain.and_then(|pico| pico.checked_add(self.per_call.request.pico_usd())) {
            Some(pico) => nanos_of_pico(pico),
            None => {
                let sum = counted.map_or(ExactSum::MAX, |counted| counted.sum());
                sum.plus(self.request_fee()).rounded_up()
            }
        }
    }

    /// Returns the lower bound of the tier that applies, in input tokens.
    pub(crate) fn tier_above(&self, usage: &Usage, modifiers: &PriceModifiers) -> u64 {
        let tier = tier_for(self.tiers_for(modifiers), usage.input_total());
        tier.map_or(0, |tier| tier.above_input_tokens)
    }

    /// Returns the usage with its text, audio and image tokens all counted as tokens of the modality with the highest price.
    pub(crate) fn in_most_expensive_modality(&self, usage: &Usage, modifiers: &PriceModifiers) -> Usage {
        let mut dearest = *usage;
        let tier = tier_for(self.tiers_for(modifiers), usage.input_total());
        if let Some(tier) = tier.filter(|tier| tier.has_modalities()) {
            let Usage {
                input_uncached,
                input_audio,
                input_image,
                cache_read,
                cache_read_audio,
                cache_read_image,
                output_text,
                output_audio,
                output_image,
                ..
            } = &mut dearest;
            for (text, audio, image, prices) in [
                (
                    input_uncached,
                    input_audio,
                    input_image,
                    [tier.input, tier.input_audio, tier.input_image],
                ),
                (
                    cache_read,
                    cache_read_audio,
                    cache_read_image,
                    [tier.cache_read, tier.cache_read_audio, tier.cache_read_image],
                ),
                (
                    output_text,
                    output_audio,
                    output_image,
                    [tier.output, tier.output_audio, tier.output_image],
                ),
            ] {
                let [of_text, of_audio, of_image] = prices;
                let count = text.saturating_add(*audio).saturating_add(*image);
                (*text, *audio, *image) = if of_image > of_text.max(of_audio) {
                    (0, 0, count)
                } else if of_audio > of_text {
                    (0, count, 0)
                } else {
                    (count, 0, 0)
                };
            }
        }
        dearest
    }

    /// Returns the fee for a request that consumed something.
    pub(crate) fn request_fee(&self) -> ExactSum {
        ExactSum::of_calls(1, self.per_call.request)
    }

    fn tiers_for(&self, modifiers: &PriceModifiers) -> &[Tier] {
        named(&self.service_tier_prices, modifiers.service_tier.as_deref()).unwrap_or(&self.tiers)
    }

    /// Returns the cost of tokens and calls in the tier whose lower bound is `above_input_tokens`.
    pub(crate) fn sum_in_tier(&self, usage: &Usage, modifiers: &PriceModifiers, above_input_tokens: u64) -> ExactSum {
        let counted = self.priced_counts(usage, modifiers, above_input_tokens);
        counted.map_or(ExactSum::MAX, |counted| counted.sum())
    }

    /// Returns each count of tokens or calls with its price in the tier whose lower bound is `above_input_tokens`. Returns `None`
    /// if there are no tiers.
    pub(crate) fn priced_counts(
        &self,
        usage: &Usage,
        modifiers: &PriceModifiers,
        above_input_tokens: u64,
    ) -> Option<PricedCounts> {
        let tier_name = modifiers.service_tier.as_deref();
        let own = named(&self.service_tier_prices, tier_name);
        // A prompt with one token more than the lower bound is in the tier.
        let tier = tier_for(self.tiers_for(modifiers), above_input_tokens.saturating_add(1))?;
        let special = |price: Option<TokenPrice>, usual| price.filter(|_| own.is_none()).unwrap_or(usual);
        let per_call = &self.per_call;
        let multipliers = &self.multipliers;
        let factors = [
            (&multipliers.service_tier, tier_name.filter(|_| own.is_none())),
            (&multipliers.speed, modifiers.speed.as_deref()),
            (&multipliers.geo, modifiers.geo.as_deref()),
        ];
        Some(PricedCounts {
            tokens: [
                ("input_uncached", usage.input_uncached, tier.input),
                ("input_audio", usage.input_audio, tier.input_audio),
                ("input_image", usage.input_image, tier.input_image),
                ("cache_read", usage.cache_read, tier.cache_read),
                ("cache_read_audio", usage.cache_read_audio, tier.cache_read_audio),
                ("cache_read_image", usage.cache_read_image, tier.cache_read_image),
                ("cache_write_short", usage.cache_write_short, tier.cache_write_short),
                ("cache_write_long", usage.cache_write_long, tier.cache_write_long),
                ("tool_input", usage.tool_input, special(self.tool_input, tier.input)),
                ("output_text", usage.output_text, tier.output),
                ("output_audio", usage.output_audio, tier.output_audio),
                ("output_image", usage.output_image, tier.output_image),
                (
                    "output_reasoning",
                    usage.output_reasoning,
                    special(self.reasoning, tier.output),
                ),
            ],
            calls: [
                ("web_searches", usage.web_searches, per_call.web_search),
                ("web_fetches", usage.web_fetches, per_call.web_fetch),
                ("file_searches", usage.file_searches, per_call.file_search),
                (
                    "code_interpreter_calls",
                    usage.code_interpreter_calls,
                    per_call.code_interpreter,
                ),
                ("image_generations", usage.image_generations, per_call.image_generation),
            ],
            factors: factors.map(|(factors, name)| named(factors, name).copied().unwrap_or(PriceFactor::ONE)),
        })
    }
}

/// Returns the highest tier that applies to a prompt of this size. The first tier applies to any prompt.
fn tier_for(tiers: &[Tier], input_total: u64) -> Option<&Tier> {
    let matches = |tier: &&Tier| input_total > tier.above_input_tokens;
    tiers.iter().rev().find(matches).or_else(|| tiers.first())
}

/// Looks up a name from an answer case-insensitively, because providers spell names in different cases.
fn named<'a, T>(listed: &'a BTreeMap<String, T>, name: Option<&str>) -> Option<&'a T> {
    let name = name?;
    listed.get(name).or_else(|| {
        let same = |(listed, _): &(&String, &T)| listed.eq_ignore_ascii_case(name);
        listed.iter().find(same).map(|(_, value)| value)
    })
}

/// The price version in the rows of requests to free models.
pub(crate) const FREE_VERSION: &str = "free";

/// Either the prices of one model at one provider, with the version of the price list that contains them, or the price of a free
/// model. A request keeps the price with which it was admitted.
///
/// The JSON form contains the version and, unless the model is free, the entry of the price list with all defaults filled in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Price {
    /// The version of the price list, which each row records.
    version: Arc<str>,
    /// The entry of the price list; `None` if the model is free.
    #[serde(flatten)]
    tariff: Option<Tariff>,
}

impl Price {
    /// Creates the price of a model that is marked free.
    pub(crate) fn free() -> Self {
        Self {
            version: FREE_VERSION.into(),
            tariff: None,
        }
    }

    /// Creates a price from an entry of the price list with this version.
    pub(crate) fn new(version: Arc<str>, tariff: Tariff) -> Self {
        Self {
            version,
            tariff: Some(tariff),
        }
    }

    /// Returns the entry of the price list; `None` if the model is free.
    pub(crate) fn tariff(&self) -> Option<&Tariff> {
        self.tariff.as_ref()
    }

    /// Returns the version of the price list, which is recorded in each row.
    pub(crate) fn version(&self) -> &str {
        &self.version
    }

    /// Returns the cost of a request, rounded up once to whole nano-USD, from 0 to [`NanoUsd::MAX`]. The cost is 0 if nothing was
    /// consumed. The same usage and modifiers always have the same cost.
    pub(crate) fn cost(&self, usage: &Usage, modifiers: &PriceModifiers) -> NanoUsd {
        let tariff = self.tariff.as_ref().filter(|_| *usage != Usage::default());
        tariff.map_or(NanoUsd::ZERO, |tariff| tariff.cost(usage, modifiers))
    }

    /// Returns the maximum cost of a request whose numbers of audio and image tokens are not known.
    pub(crate) fn maximum_cost(&self, usage: &Usage, modifiers: &PriceModifiers) -> NanoUsd {
        let tariff = self.tariff.as_ref();
        let dearest = tariff.map(|tariff| tariff.in_most_expensive_modality(usage, modifiers));
        self.cost(dearest.as_ref().unwrap_or(usage), modifiers)
    }

    /// Returns the exact cost of tokens and calls, without the request fee.
    pub(crate) fn sum(&self, usage: &Usage, modifiers: &PriceModifiers) -> ExactSum {
        let tariff = self.tariff.as_ref().filter(|_| *usage != Usage::default());
        tariff.map(|tariff| tariff.sum(usage, modifiers)).unwrap_or_default()
    }

    /// Returns the fee per request; zero if the request consumed nothing.
    pub(crate) fn request_fee(&self, usage: &Usage) -> ExactSum {
        let tariff = self.tariff.as_ref().filter(|_| *usage != Usage::default());
        tariff.map(Tariff::request_fee).unwrap_or_default()
    }

    /// Returns the lower bound of the tier that applies, in input tokens; 0 for the first tier and for a free model.
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

    /// Returns a line for each kind of tokens and calls, priced in the tier whose lower bound is `above_input_tokens`; no lines
    /// for a free model.
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

    /// Returns the line of the request fee; `None` if the price has no fee or the request consumed nothing.
    pub(crate) fn fee_line(&self, usage: &Usage) -> Option<PriceLine> {
        let tariff = self.tariff.as_ref().filter(|_| *usage != Usage::default())?;
        let fee = tariff.per_call.request;
        (fee.pico_usd() > 0).then(|| PriceLine::of_calls("request", 1, fee))
    }
}
