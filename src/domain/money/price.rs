//! Prices and charges. A price is a whole number of pico-USD per token or per call. The sum of all costs is exact, and a charge
//! is rounded only once. Price lists contain decimal numbers, which are parsed as exact integers, never as floating-point
//! numbers.
//!
//! Several models may contribute to one answer, each in one or more runs. Each run is charged at the price of its own model, in
//! the price tier for the size of its own prompt.

mod list;
mod tariff;
#[cfg(test)]
mod tests;

use std::{borrow::Cow, fmt, sync::Arc};

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use thiserror::Error;

use crate::domain::{
    money::NanoUsd,
    wire::usage::{PriceModifiers, Run, RunKind, Usage, is_zero},
};

pub use crate::domain::money::price::list::PriceList;
pub(crate) use crate::domain::money::price::list::SHIPPED_FILE;
pub(crate) use crate::domain::money::price::tariff::Price;
pub(crate) use crate::domain::money::price::tariff::Tier;

/// A part of a request's charge: the runs of one model with the same purpose and price tier. A row has no parts if only the
/// requested model ran, in one price tier.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CostShare {
    /// The purpose of the runs.
    pub run: RunKind,
    /// The model's name in the catalogue, or at the provider if the catalogue does not have the model.
    pub model: String,
    /// The total consumption of these runs.
    #[serde(flatten)]
    pub usage: Usage,
    /// The catalogue model at whose price the runs were charged; `None` if `model` has a price of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priced_as: Option<String>,
    /// The version of the price at which the runs were charged; `None` if it is the row's `price_version`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price_version: Option<String>,
    /// The lower bound of the runs' price tier: the tier applies to prompts with more input tokens than this.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub above_input_tokens: u64,
    /// The part's share of the charge. The shares of all parts add up to the charge.
    pub cost_nano_usd: NanoUsd,
}

/// The maximum number of parts in one row. Each part is a group of runs with the same purpose, model and tier. An answer with
/// advice, a compaction and a fallback has four parts, because the answer itself is one of them. If there are already four
/// groups, a run that belongs to none of them is added to the group in which the run costs most.
pub(crate) const PARTS_MAX: usize = 4;

/// A run of a model within an answer, with the price of its model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PricedRun {
    /// The run and its usage.
    pub run: Run,
    /// The run's model with its price; `None` if it is the model of the request.
    pub other: Option<OtherModel>,
}

/// A model that contributed to an answer and is not the model of the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OtherModel {
    /// The model's name in the catalogue, or at the provider if the catalogue does not have the model.
    pub name: String,
    /// The catalogue model whose price is used; `None` if `name` has a price of its own.
    pub priced_as: Option<String>,
    pub price: Arc<Price>,
}

/// The charge of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Charge {
    /// The total of the charge.
    pub cost: NanoUsd,
    /// The parts of the charge; empty if the cost can be computed from the row's price and usage alone.
    pub parts: Vec<CostShare>,
}

/// The runs of a request with the same purpose, model and price tier.
struct RunGroup<'a> {
    kind: RunKind,
    other: Option<&'a OtherModel>,
    price: &'a Price,
    above_input_tokens: u64,
    usage: Usage,
}

impl RunGroup<'_> {
    fn is_same_group(&self, new: &Self) -> bool {
        (self.kind, self.other, self.above_input_tokens) == (new.kind, new.other, new.above_input_tokens)
    }

    fn sum(&self, usage: &Usage, modifiers: &PriceModifiers) -> ExactSum {
        let modifiers = modifiers.for_run(self.kind);
        self.price.sum_in_tier(usage, &modifiers, self.above_input_tokens)
    }
}

/// Computes the charge for `usage` of the model `model` at `price`. If `runs` is not empty, `usage` is the sum of the runs.
pub(crate) fn charge(
    model: &str,
    price: &Price,
    usage: &Usage,
    modifiers: &PriceModifiers,
    runs: &[PricedRun],
) -> Charge {
    let groups = group_runs(price, modifiers, runs);
    let own_tier = price.tier_above(usage, modifiers);
    let is_plain = |group: &RunGroup<'_>| {
        group.kind == RunKind::Answer && group.other.is_none() && group.above_input_tokens == own_tier
    };
    if groups.iter().all(is_plain) {
        return Charge {
            cost: price.cost(usage, modifiers),
            parts: Vec::new(),
        };
    }
    // The request fee is included in the first part. Each part's share is the amount by which the rounded sum rises, so the
    // shares of all parts add up to the rounded sum.
    let mut sum = price.request_fee(usage);
    let mut before = NanoUsd::ZERO;
    let mut parts = Vec::with_capacity(groups.len());
    for group in groups {
        sum = sum.plus(group.sum(&group.usage, modifiers));
        let after = sum.rounded_up();
        let version = Some(group.price.version()).filter(|version| *version != price.version());
        parts.push(CostShare {
            run: group.kind,
            model: group.other.map_or(model, |other| &other.name).to_owned(),
            usage: group.usage,
            priced_as: group.other.and_then(|other| other.priced_as.clone()),
            price_version: version.map(str::to_owned),
            above_input_tokens: group.above_input_tokens,
            cost_nano_usd: after.saturating_sub(before),
        });
        before = after;
    }
    Charge { cost: before, parts }
}

fn group_runs<'a>(price: &'a Price, modifiers: &PriceModifiers, runs: &'a [PricedRun]) -> Vec<RunGroup<'a>> {
    let mut groups: Vec<RunGroup<'a>> = Vec::new();
    for PricedRun { run, other } in runs {
        let new = RunGroup {
            kind: run.kind,
            other: other.as_ref(),
            price: other.as_ref().map_or(price, |other| &other.price),
            above_input_tokens: 0,
            usage: run.usage,
        };
        let new = RunGroup {
            above_input_tokens: new.price.tier_above(&run.usage, &modifiers.for_run(run.kind)),
            ..new
        };
        let same = groups.iter().position(|group| group.is_same_group(&new));
        let place = match same {
            None if groups.len() >= PARTS_MAX => most_expensive_group(&groups, &run.usage, modifiers),
            same => same,
        };
        match place.and_then(|at| groups.get_mut(at)) {
            Some(group) => group.usage = group.usage.plus(&run.usage),
            None => groups.push(new),
        }
    }
    groups
}

/// Returns the index of the group whose price makes `usage` most expensive; `None` if there are no groups.
fn most_expensive_group(groups: &[RunGroup<'_>], usage: &Usage, modifiers: &PriceModifiers) -> Option<usize> {
    let sums = groups.iter().map(|group| group.sum(usage, modifiers)).enumerate();
    sums.max_by_key(|(_, sum)| *sum).map(|(at, _)| at)
}

/// Recomputes the charge of a row from its parts and their prices. `find` returns the price of a catalogue model. The result is
/// `None` if `find` does not return a price.
#[cfg(test)]
fn recomputed(
    price: &Price,
    usage: &Usage,
    modifiers: &PriceModifiers,
    parts: &[CostShare],
    find: impl Fn(&str) -> Option<Arc<Price>>,
) -> Option<NanoUsd> {
    let mut sum = price.request_fee(usage);
    for part in parts {
        let modifiers = modifiers.for_run(part.run);
        let price = find(part.priced_as.as_ref().unwrap_or(&part.model))?;
        sum = sum.plus(price.sum_in_tier(&part.usage, &modifiers, part.above_input_tokens));
    }
    Some(sum.rounded_up())
}

/// The number of pico-USD in one nano-USD.
const PICO_PER_NANO: u16 = 1000;
/// The integer that represents 1 as the product of three factors. Each factor is in millionths, so the product is in units of
/// 10^-18.
const FACTORS_ONE: i128 = 1_000_000_000_000_000_000;
/// The number of decimal places of an exact sum in USD: 12 for pico-USD and 18 for the three factors.
const EXACT_PLACES: usize = 30;

/// The numbers of a request's tokens and calls, by kind. Each number has the price of its kind, and the name of its kind in the
/// consumption log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PricedCounts {
    tokens: [(&'static str, u64, TokenPrice); 13],
    calls: [(&'static str, u64, CallPrice); 5],
    /// The factors for token prices: by service tier, by speed and by geography.
    factors: [PriceFactor; 3],
}

/// A line of a request's charge: one kind of tokens or calls, with its count and price.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PriceLine {
    /// The name of the priced quantity in the consumption log; `request` for the request fee.
    pub counted: Cow<'static, str>,
    pub count: u64,
    /// The price in USD per unit of `per`.
    pub price_usd: String,
    /// The unit of the price: `1M tokens` or `call`.
    pub per: Cow<'static, str>,
    /// The factor by which the price is multiplied; `None` if the factor is 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub factor: Option<String>,
    /// The cost of the line in USD, exact and not rounded.
    pub cost_usd: String,
}

impl PricedCounts {
    /// Returns the exact cost of all counts.
    fn sum(&self) -> ExactSum {
        let (mut tokens, mut calls) = (0_i128, 0_i128);
        // Counts of zero are skipped, because most are zero.
        for (_, count, price) in &self.tokens {
            if *count > 0 {
                tokens = tokens.saturating_add(product(*count, price.pico_usd()));
            }
        }
        for (_, count, price) in &self.calls {
            if *count > 0 {
                calls = calls.saturating_add(product(*count, price.pico_usd()));
            }
        }
        let calls = calls.saturating_mul(FACTORS_ONE);
        ExactSum(tokens.saturating_mul(self.factor()).saturating_add(calls))
    }

    /// Returns the cost in whole pico-USD if no factor applies and the sum does not overflow, which is the usual case. Returns
    /// `None` otherwise; [`PricedCounts::sum`] handles those cases.
    fn whole_pico_usd(&self) -> Option<u64> {
        if self.factors != [PriceFactor::ONE; 3] {
            return None;
        }
        let tokens = self.tokens.iter().map(|(_, count, price)| (*count, price.pico_usd()));
        let calls = self.calls.iter().map(|(_, count, price)| (*count, price.pico_usd()));
        let mut counted = tokens.chain(calls).filter(|(count, _)| *count > 0);
        counted.try_fold(0_u64, |sum, (count, price)| sum.checked_add(count.checked_mul(price)?))
    }

    /// Returns a line for each count that is not zero. The lines add up to [`PricedCounts::sum`].
    fn lines(&self) -> Vec<PriceLine> {
        let factor = self.factor();
        let tokens = self.tokens.iter().filter(|(_, count, _)| *count > 0);
        let tokens = tokens.map(|(counted, count, price)| PriceLine {
            counted: Cow::Borrowed(*counted),
            count: *count,
            price_usd: price.to_string(),
            per: Cow::Borrowed("1M tokens"),
            factor: (factor != FACTORS_ONE).then(|| to_decimal(factor, EXACT_PLACES - 12)),
            cost_usd: ExactSum(product(*count, price.pico_usd()).saturating_mul(factor)).to_string(),
        });
        let calls = self.calls.iter().filter(|(_, count, _)| *count > 0);
        let calls = calls.map(|(counted, count, price)| PriceLine::of_calls(counted, *count, *price));
        tokens.chain(calls).collect()
    }

    fn factor(&self) -> i128 {
        let millionths = self.factors.iter().map(|factor| i128::from(factor.millionths()));
        millionths.fold(1, i128::saturating_mul)
    }
}

impl PriceLine {
    /// Creates the line for `count` calls at this price.
    fn of_calls(counted: &'static str, count: u64, price: CallPrice) -> Self {
        Self {
            counted: Cow::Borrowed(counted),
            count,
            price_usd: price.to_string(),
            per: Cow::Borrowed("call"),
            factor: None,
            cost_usd: ExactSum::of_calls(count, price).to_string(),
        }
    }
}

/// An unrounded sum of money in units of 10^-18 pico-USD. The unit is this small because a price in whole pico-USD is multiplied
/// by three factors, each in millionths.
///
/// The sum saturates at `i128::MAX`, which is far above [`NanoUsd::MAX`] in this unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ExactSum(i128);

impl ExactSum {
    const MAX: Self = Self(i128::MAX);

    /// Returns the sum of `self` and `other`.
    #[must_use]
    pub(crate) fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// Returns the cost of `count` calls at a price.
    fn of_calls(count: u64, price: CallPrice) -> Self {
        Self(product(count, price.pico_usd()).saturating_mul(FACTORS_ONE))
    }

    /// Rounds the sum up to whole nano-USD, at most [`NanoUsd::MAX`].
    pub(crate) fn rounded_up(self) -> NanoUsd {
        let unit = i128::from(PICO_PER_NANO).saturating_mul(FACTORS_ONE);
        let whole = self.0 / unit;
        let nanos = whole + i128::from(whole * unit != self.0);
        i64::try_from(nanos).map_or(NanoUsd::MAX, |nanos| NanoUsd::from_nanos(nanos).min(NanoUsd::MAX))
    }
}

/// Formats the sum in USD, with as many decimal places as needed.
impl fmt::Display for ExactSum {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&to_decimal(self.0, EXACT_PLACES))
    }
}

/// Converts pico-USD to whole nano-USD, rounded up, at most [`NanoUsd::MAX`].
fn nanos_of_pico(pico: u64) -> NanoUsd {
    let nanos = i64::try_from(pico.div_ceil(PICO_PER_NANO.into())).unwrap_or(i64::MAX);
    NanoUsd::from_nanos(nanos).min(NanoUsd::MAX)
}

fn product(count: u64, price: u64) -> i128 {
    i128::from(count).saturating_mul(price.into())
}

/// Formats `value` times 10^-`places` as a decimal number, with as many decimal places as needed. `value` must not be negative.
fn to_decimal(value: i128, places: usize) -> String {
    let digits = format!("{value:0>width$}", width = places + 1);
    let (whole, fraction) = digits.split_at(digits.len() - places);
    match fraction.trim_end_matches('0') {
        "" => whole.to_owned(),
        fraction => format!("{whole}.{fraction}"),
    }
}

/// The number of decimal places of a price in USD per 1M tokens. The last place is one pico-USD per token.
const PER_MILLION_PLACES: usize = 6;
/// The number of decimal places of a price in USD per call. The last place is one pico-USD.
const PER_CALL_PLACES: usize = 12;
/// The number of decimal places of a multiplier.
const FACTOR_PLACES: usize = 6;
/// The integer that represents the factor 1: a million millionths.
const FACTOR_ONE: u64 = 1_000_000;
/// The largest price in USD, per 1M tokens or per call.
const USD_MAX: u64 = 1_000_000;
/// The largest multiplier.
const FACTOR_MAX: u64 = 1000;

/// A price per token, in pico-USD (10^-12 USD). In a price list and in JSON, it is in USD per 1M tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, JsonSchema)]
#[schemars(with = "String", inline)]
pub(crate) struct TokenPrice(u64);

/// A price per call, in pico-USD (10^-12 USD). In a price list and in JSON, it is in USD.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, JsonSchema)]
#[schemars(with = "String", inline)]
pub(crate) struct CallPrice(u64);

/// A multiplier of prices, in millionths. In a price list and in JSON, it is a decimal number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, JsonSchema)]
#[schemars(with = "String", inline)]
pub(crate) struct PriceFactor(u64);

impl TokenPrice {
    /// Parses a price in USD per 1M tokens, such as `0.0036`.
    ///
    /// # Errors
    /// See [`DecimalError`].
    pub(crate) fn parse(text: &str) -> Result<Self, DecimalError> {
        parse_scaled(text, PER_MILLION_PLACES, USD_MAX).map(Self)
    }

    /// Returns the price in pico-USD per token.
    pub(crate) const fn pico_usd(self) -> u64 {
        self.0
    }
}

impl CallPrice {
    /// Parses a price in USD per call, such as `0.01`.
    ///
    /// # Errors
    /// See [`DecimalError`].
    pub(crate) fn parse(text: &str) -> Result<Self, DecimalError> {
        parse_scaled(text, PER_CALL_PLACES, USD_MAX).map(Self)
    }

    /// Returns the price in pico-USD per call.
    pub(crate) const fn pico_usd(self) -> u64 {
        self.0
    }
}

impl PriceFactor {
    /// The factor 1, which changes no price.
    pub(crate) const ONE: Self = Self(FACTOR_ONE);

    /// Parses a multiplier, such as `1.1`.
    ///
    /// # Errors
    /// See [`DecimalError`].
    pub(crate) fn parse(text: &str) -> Result<Self, DecimalError> {
        parse_scaled(text, FACTOR_PLACES, FACTOR_MAX).map(Self)
    }

    /// Returns the factor in millionths.
    pub(crate) const fn millionths(self) -> u64 {
        self.0
    }
}

/// The error for a string that is not a price or a multiplier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub(crate) enum DecimalError {
    /// The value is not a decimal number in quotes.
    #[error(
        "expected a decimal number in quotes, such as \"0.25\", with digits and at most one point, and without a sign or a comma"
    )]
    Malformed,
    /// The number has more decimal places than the maximum, which is the variant's value.
    #[error("the number has too many decimal places; give at most {0} decimal places")]
    TooFine(usize),
    /// The number is larger than the maximum, which is the variant's value.
    #[error("the number is too large: give at most {0}")]
    TooLarge(u64),
}

/// Parses a decimal number of at most `most` and returns it times 10^`places`.
fn parse_scaled(text: &str, places: usize, most: u64) -> Result<u64, DecimalError> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let plain = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    if !plain(whole) || !plain(fraction) {
        return Err(DecimalError::Malformed);
    }
    // Trailing zeros after the point have no meaning.
    let fraction = fraction.trim_end_matches('0');
    if fraction.len() > places {
        return Err(DecimalError::TooFine(places));
    }
    let too_large = DecimalError::TooLarge(most);
    let whole: u64 = whole.parse().map_err(|_| too_large)?;
    let fraction: u64 = format!("{fraction:0<places$}").parse().map_err(|_| too_large)?;
    let scale = power_of_ten(places);
    whole
        .checked_mul(scale)
        .and_then(|whole| whole.checked_add(fraction))
        .filter(|sum| *sum <= most.saturating_mul(scale))
        .ok_or(too_large)
}

/// Returns 10^`places`; saturates on overflow.
fn power_of_ten(places: usize) -> u64 {
    (0..places).fold(1, |power: u64, _| power.saturating_mul(10))
}

/// Writes `value` times 10^-`places` as a decimal number, with as many decimal places as needed.
fn written(value: u64, places: usize, out: &mut fmt::Formatter<'_>) -> fmt::Result {
    let scale = power_of_ten(places);
    let fraction = format!("{:0places$}", value % scale);
    let fraction = fraction.trim_end_matches('0');
    let dot = if fraction.is_empty() { "" } else { "." };
    write!(out, "{}{dot}{fraction}", value / scale)
}

/// Implements `Display`, `Serialize` and `Deserialize` for a number. The serialized form is the decimal string that `parse`
/// accepts.
macro_rules! decimal {
    ($($name:ident: $places:ident;)*) => { $(
        impl fmt::Display for $name {
            fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                written(self.0, $places, out)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                Self::parse(&String::deserialize(from)?).map_err(D::Error::custom)
            }
        }
    )* };
}

decimal! {
    TokenPrice: PER_MILLION_PLACES;
    CallPrice: PER_CALL_PLACES;
    PriceFactor: FACTOR_PLACES;
}

#[cfg(test)]
mod counted_tests {
    use proptest::prelude::*;

    use super::*;

    /// Generates numbers from 0 to `most`. Small numbers are more likely.
    fn number(most: u64) -> impl Strategy<Value = u64> {
        (0..=most, 0..64_u32).prop_map(|(number, shift)| number >> shift)
    }

    fn per_token() -> impl Strategy<Value = TokenPrice> {
        number(1_000_000_000_000).prop_map(|pico| {
            let (usd, rest) = (pico / 1_000_000, pico % 1_000_000);
            TokenPrice::parse(&format!("{usd}.{rest:06}")).unwrap()
        })
    }

    fn per_call() -> impl Strategy<Value = CallPrice> {
        number(1_000_000_000_000_000).prop_map(|pico| {
            let (usd, rest) = (pico / 1_000_000_000_000, pico % 1_000_000_000_000);
            CallPrice::parse(&format!("{usd}.{rest:012}")).unwrap()
        })
    }

    proptest! {
        #[test]
        fn a_sum_in_whole_pico_usd_is_the_exact_one(
            tokens in prop::collection::vec((number(u64::MAX), per_token()), 13),
            calls in prop::collection::vec((number(u64::MAX), per_call()), 5),
        ) {
            let counted = PricedCounts {
                tokens: std::array::from_fn(|at| ("tokens", tokens[at].0, tokens[at].1)),
                calls: std::array::from_fn(|at| ("calls", calls[at].0, calls[at].1)),
                factors: [PriceFactor::ONE; 3],
            };
            match counted.whole_pico_usd() {
                Some(pico) => prop_assert_eq!(nanos_of_pico(pico), counted.sum().rounded_up()),
                None => prop_assert_eq!(counted.sum().rounded_up(), NanoUsd::MAX),
            }
            let twice = PriceFactor::parse("2").unwrap();
            let dearer = PricedCounts { factors: [PriceFactor::ONE, twice, PriceFactor::ONE], ..counted };
            prop_assert_eq!(dearer.whole_pico_usd(), None);
        }
    }

    #[test]
    fn an_exact_sum_is_written_with_every_place_it_has() {
        let exact = |pico: i128| ExactSum(pico * FACTORS_ONE).to_string();
        assert_eq!(
            [0, 1, 1_000_000_000_000, 3_250_000_000_000].map(exact),
            ["0", "0.000000000001", "1", "3.25"]
        );
        assert_eq!(ExactSum(5).to_string(), "0.000000000000000000000000000005");
        assert_eq!(to_decimal(FACTORS_ONE / 2, 18), "0.5");
    }
}

#[cfg(test)]
mod decimal_tests {
    use super::*;

    #[test]
    fn prices_are_exact_to_the_pico_usd() {
        for (text, pico, again) in [
            ("0.0036", 3600, "0.0036"),
            ("1", 1_000_000, "1"),
            ("12.50", 12_500_000, "12.5"),
            ("0.000001", 1, "0.000001"),
            ("0", 0, "0"),
            ("1000000", 1_000_000_000_000, "1000000"),
            ("0.1000000000", 100_000, "0.1"),
        ] {
            let price = TokenPrice::parse(text).unwrap();
            assert_eq!((price.pico_usd(), price.to_string().as_str()), (pico, again));
        }
        assert_eq!(CallPrice::parse("0.01").unwrap().pico_usd(), 10_000_000_000);
        assert_eq!(
            CallPrice::parse("0.000000000001").unwrap().to_string(),
            "0.000000000001"
        );
        assert_eq!(PriceFactor::parse("1.1").unwrap().millionths(), 1_100_000);
        assert_eq!(PriceFactor::parse("1").unwrap(), PriceFactor::ONE);
    }

    #[test]
    fn what_is_no_price_is_said_so() {
        for text in ["", ".5", "1.", "+1", "-1", "1e3", "0x1", " 1", "1,5", "١"] {
            assert_eq!(TokenPrice::parse(text), Err(DecimalError::Malformed), "{text}");
        }
        assert_eq!(TokenPrice::parse("0.0000001"), Err(DecimalError::TooFine(6)));
        assert_eq!(CallPrice::parse("0.0000000000001"), Err(DecimalError::TooFine(12)));
        for text in ["1000000.000001", "99999999999999999999", "18446744073709551615"] {
            assert_eq!(
                TokenPrice::parse(text),
                Err(DecimalError::TooLarge(1_000_000)),
                "{text}"
            );
        }
        assert_eq!(PriceFactor::parse("1000.1"), Err(DecimalError::TooLarge(1000)));
    }
}
