//! Price lists: the list that is shipped with weir, and the operator's own list. An entry of the operator's list replaces the
//! shipped entry with the same name and provider.

use std::{collections::BTreeMap, sync::Arc};

use serde::{Deserialize, de::IgnoredAny};
use toml::Spanned;

use crate::domain::{
    money::price::{
        CallPrice, DecimalError, PriceFactor, TokenPrice,
        tariff::{FREE_VERSION, Multipliers, PerCallPrices, Price, Tariff, Tier},
    },
    strict_toml::{Faults, FileError, parse_all},
    wire::operation,
};

/// The path of the shipped price list in the repository, for use in error messages.
pub(crate) const SHIPPED_FILE: &str = "conf/prices.toml";

/// Prices by name and provider. A price without a provider applies to all providers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PriceList {
    entries: BTreeMap<PriceKey, PriceEntry>,
}

/// The name of a price, and the provider to which the price applies; `None` if it applies to all providers.
type PriceKey = (String, Option<String>);

/// A price with the file and line of its definition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PriceEntry {
    /// The name of the file that defines the price, as passed to [`PriceList::read`].
    pub file: String,
    /// The line of the price's `[[price]]` header in that file, counted from 1.
    pub line: usize,
    /// The price, which has passed all checks.
    pub price: Arc<Price>,
}

impl PriceList {
    /// Parses a price list. `file` is the file's name in errors.
    ///
    /// # Errors
    /// All errors in the list, each with its line and TOML key. If the file is not valid TOML, only its syntax errors are
    /// returned, at most one per line.
    pub fn read(file: &str, text: &str) -> Result<Self, Vec<FileError>> {
        let mut entries = BTreeMap::new();
        for (line, tariff, price) in read_prices(file, text)? {
            let entry = PriceEntry {
                file: file.to_owned(),
                line,
                price: Arc::new(price),
            };
            entries.insert((tariff.name, tariff.provider), entry);
        }
        Ok(Self { entries })
    }

    /// Returns the price list that is compiled into weir.
    ///
    /// # Errors
    /// As for [`PriceList::read`]. A test proves that the shipped list has no errors.
    pub(crate) fn shipped() -> Result<Self, Vec<FileError>> {
        Self::read(SHIPPED_FILE, include_str!("../../../../conf/prices.toml"))
    }

    /// Adds the entries of another list. An entry of the other list replaces the entry with the same name and provider.
    #[must_use]
    pub(crate) fn extended_by(mut self, other: Self) -> Self {
        self.entries.extend(other.entries);
        self
    }

    /// Returns the price with this name for a provider: the price for this provider only, or else the price for all providers.
    pub(crate) fn find(&self, name: &str, provider: &str) -> Option<&Arc<Price>> {
        let get = |provider: Option<&str>| self.entries.get(&(name.to_owned(), provider.map(str::to_owned)));
        get(Some(provider)).or_else(|| get(None)).map(|entry| &entry.price)
    }

    /// Returns all entries, each with its name and its provider. The provider is `None` if the price applies to all providers.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, Option<&str>, &PriceEntry)> {
        let entries = self.entries.iter();
        entries.map(|((name, provider), entry)| (name.as_str(), provider.as_deref(), entry))
    }
}

/// A price list file after TOML parsing, before its numbers are parsed and its values are checked.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawList {
    pub(super) version: Spanned<String>,
    #[serde(default)]
    pub(super) price: Vec<Spanned<RawPrice>>,
}

/// An entry `[[price]]` of a price list file.
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

/// An element of `tiers` in a price list file.
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

/// The table `per_call` in a price list file.
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

/// The table `multipliers` in a price list file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct RawMultipliers {
    pub(super) service_tier: BTreeMap<String, Spanned<RawDecimal>>,
    pub(super) speed: BTreeMap<String, Spanned<RawDecimal>>,
    pub(super) geo: BTreeMap<String, Spanned<RawDecimal>>,
}

/// A decimal number in a string. Values of other types are accepted at first. A later check rejects them with an error that
/// contains the TOML key and an example.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum RawDecimal {
    Text(String),
    Other(IgnoredAny),
}

/// The maximum length of a price list's version, in bytes.
const VERSION_BYTES_MAX: usize = 64;
/// The maximum number of tiers in one entry of a price list.
const TIERS_MAX: usize = 16;

/// Parses all prices of a file in order, each with its line, counted from 1. Returns all errors together, not only the first.
pub(super) fn read_prices(file: &str, text: &str) -> Result<Vec<(usize, Tariff, Price)>, Vec<FileError>> {
    let parsed = parse_all::<RawList>(file, text);
    let (raw, mut faults) = Faults::from_parsed(file, text, parsed)?;
    let version = version(&raw.version, &mut faults);
    let mut prices: Vec<(usize, Tariff, Price)> = Vec::with_capacity(raw.price.len());
    for price in &raw.price {
        let line = faults.line(price);
        let mut reader = PriceReader {
            name: price.get_ref().name.get_ref(),
            faults: &mut faults,
        };
        let tariff = reader.tariff(price.get_ref());
        let same = |(_, other, _): &&(usize, Tariff, Price)| {
            (&other.name, &other.provider) == (&tariff.name, &tariff.provider)
        };
        if let Some((other, ..)) = prices.iter().find(same) {
            reader.report_fault(price, "name", format!("this price is already defined in line {other}"));
        }
        prices.push((line, tariff.clone(), Price::new(Arc::clone(&version), tariff)));
    }
    if faults.is_empty() {
        Ok(prices)
    } else {
        Err(faults.into_errors())
    }
}

fn version(given: &Spanned<String>, faults: &mut Faults<'_>) -> Arc<str> {
    let text = given.get_ref();
    let plain = text.bytes().all(|byte| byte.is_ascii_graphic());
    if text.is_empty() || text.len() > VERSION_BYTES_MAX || !plain || text == FREE_VERSION {
        let message = format!(
            "key `version`: give 1 to {VERSION_BYTES_MAX} printable characters without spaces, such as a date, and not `{FREE_VERSION}`"
        );
        faults.add_at(given, "version", message);
    }
    text.as_str().into()
}

/// A parser for one entry of a price list. It reports each invalid value and continues with a valid substitute.
struct PriceReader<'r, 'f> {
    name: &'r str,
    faults: &'r mut Faults<'f>,
}

impl PriceReader<'_, '_> {
    fn report_fault<T>(&mut self, place: &Spanned<T>, key: &str, message: impl std::fmt::Display) {
        let message = if operation::is_plausible(self.name) {
            format!("price `{}`: key `{key}`: {message}", self.name)
        } else {
            format!("[[price]]: key `{key}`: {message}")
        };
        self.faults.add_at(place, key, message);
    }

    fn tariff(&mut self, raw: &RawPrice) -> Tariff {
        if !operation::is_plausible(self.name) {
            self.report_fault(&raw.name, "name", format!("give {}", operation::RULE));
        }
        let per_token = |reader: &mut Self, value: &Option<Spanned<RawDecimal>>, key| {
            value.as_ref().map(|value| reader.per_token(value, key))
        };
        Tariff {
            name: self.name.to_owned(),
            provider: raw.provider.as_ref().map(|provider| provider.get_ref().clone()),
            source: raw.source.clone(),
            tiers: self.tiers(&raw.tiers, "tiers"),
            reasoning: per_token(self, &raw.reasoning, "reasoning"),
            tool_input: per_token(self, &raw.tool_input, "tool_input"),
            per_call: self.per_call(&raw.per_call),
            multipliers: self.multipliers(&raw.multipliers),
            service_tier_prices: self.service_tier_prices(raw),
        }
    }

    fn tiers(&mut self, raw: &Spanned<Vec<Spanned<RawTier>>>, key: &str) -> Vec<Tier> {
        let given = raw.get_ref();
        if given.len() > TIERS_MAX {
            self.report_fault(raw, key, format_args!("give at most {TIERS_MAX} tiers"));
        }
        if given.iter().all(|tier| tier.get_ref().above_input_tokens != 0) {
            self.report_fault(
                raw,
                key,
                "give one tier without `above_input_tokens`, for short prompts",
            );
        }
        let mut tiers: Vec<Tier> = Vec::with_capacity(given.len());
        for tier in given {
            let above_input_tokens = tier.get_ref().above_input_tokens;
            if tiers.iter().any(|other| other.above_input_tokens == above_input_tokens) {
                self.report_fault(
                    tier,
                    key,
                    format_args!("two tiers begin above {above_input_tokens} tokens: remove one"),
                );
            }
            tiers.push(self.tier(tier.get_ref()));
        }
        tiers.sort_by_key(|tier| tier.above_input_tokens);
        tiers
    }

    /// Parses one tier. A missing cache price defaults to the input price. A missing price for audio or images defaults to the
    /// corresponding price for text tokens.
    fn tier(&mut self, raw: &RawTier) -> Tier {
        let (input, output) = (
            self.per_token(&raw.input, "input"),
            self.per_token(&raw.output, "output"),
        );
        let mut price = |value: &Option<Spanned<RawDecimal>>, key, usual| {
            value.as_ref().map_or(usual, |value| self.per_token(value, key))
        };
        let cache_read = price(&raw.cache_read, "cache_read", input);
        Tier {
            above_input_tokens: raw.above_input_tokens,
            input,
            input_audio: price(&raw.input_audio, "input_audio", input),
            input_image: price(&raw.input_image, "input_image", input),
            cache_read,
            cache_read_audio: price(&raw.cache_read_audio, "cache_read_audio", cache_read),
            cache_read_image: price(&raw.cache_read_image, "cache_read_image", cache_read),
            cache_write_short: price(&raw.cache_write_short, "cache_write_short", input),
            cache_write_long: price(&raw.cache_write_long, "cache_write_long", input),
            output,
            output_audio: price(&raw.output_audio, "output_audio", output),
            output_image: price(&raw.output_image, "output_image", output),
        }
    }

    fn per_call(&mut self, raw: &RawPerCall) -> PerCallPrices {
        let mut price = |value: &Option<Spanned<RawDecimal>>, key| {
            let value = value.as_ref();
            value.map_or(CallPrice::default(), |value| {
                self.decimal(value, key, CallPrice::parse).unwrap_or_default()
            })
        };
        PerCallPrices {
            web_search: price(&raw.web_search, "web_search"),
            web_fetch: price(&raw.web_fetch, "web_fetch"),
            file_search: price(&raw.file_search, "file_search"),
            code_interpreter: price(&raw.code_interpreter, "code_interpreter"),
            image_generation: price(&raw.image_generation, "image_generation"),
            request: price(&raw.request, "request"),
        }
    }

    fn multipliers(&mut self, raw: &RawMultipliers) -> Multipliers {
        let mut factors = |given: &BTreeMap<String, Spanned<RawDecimal>>| {
            let mut factors = BTreeMap::new();
            for (name, value) in given {
                let factor = self
                    .decimal(value, name, PriceFactor::parse)
                    .unwrap_or(PriceFactor::ONE);
                factors.insert(name.clone(), factor);
            }
            factors
        };
        Multipliers {
            service_tier: factors(&raw.service_tier),
            speed: factors(&raw.speed),
            geo: factors(&raw.geo),
        }
    }

    fn service_tier_prices(&mut self, raw: &RawPrice) -> BTreeMap<String, Vec<Tier>> {
        let mut prices = BTreeMap::new();
        for (name, tiers) in &raw.service_tier_prices {
            let factors = &raw.multipliers.service_tier;
            if factors.keys().any(|other| other.eq_ignore_ascii_case(name)) {
                self.report_fault(
                    tiers,
                    name,
                    "give either prices or a multiplier for this service tier, not both",
                );
            }
            prices.insert(name.clone(), self.tiers(tiers, name));
        }
        prices
    }

    fn per_token(&mut self, value: &Spanned<RawDecimal>, key: &str) -> TokenPrice {
        self.decimal(value, key, TokenPrice::parse).unwrap_or_default()
    }

    fn decimal<T>(
        &mut self,
        value: &Spanned<RawDecimal>,
        key: &str,
        parse: impl Fn(&str) -> Result<T, DecimalError>,
    ) -> Option<T> {
        let parsed = match value.get_ref() {
            RawDecimal::Text(text) => parse(text),
            RawDecimal::Other(_) => Err(DecimalError::Malformed),
        };
        parsed.map_err(|error| self.report_fault(value, key, error)).ok()
    }
}
