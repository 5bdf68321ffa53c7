//! What a request's counts come to, each at its price, before the sum is rounded.

use std::{borrow::Cow, fmt};

use serde::{Deserialize, Serialize};

use crate::domain::money::{
    NanoUsd,
    price::decimal::{Factor, PerCall, PerToken},
};

/// Pico-USD in one nano-USD.
const PICO_PER_NANO: u16 = 1000;
/// The three factors are in millionths: their product counts in 10^-18.
const FACTORS_ONE: i128 = 1_000_000_000_000_000_000;
/// Decimal places of USD in which a sum is exact: twelve of a pico-USD and eighteen of the factors.
const EXACT_PLACES: usize = 30;

/// A request's counts by the names that the consumption log has for them, each with its price.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counted {
    pub(super) tokens: [(&'static str, u64, PerToken); 13],
    pub(super) calls: [(&'static str, u64, PerCall); 5],
    /// Factors on the prices of tokens: of service tier, speed and geography.
    pub(super) factors: [Factor; 3],
}

/// A line of a bill: a count at its price.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PriceLine {
    /// What is counted, by its name in the consumption log; `request` for the fee of a request.
    pub counted: Cow<'static, str>,
    pub count: u64,
    /// The price in USD, of what `per` says.
    pub price_usd: String,
    /// `1M tokens` or `call`.
    pub per: Cow<'static, str>,
    /// The factor on the price; `None` for 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub factor: Option<String>,
    /// What it comes to in USD, exact and not rounded.
    pub cost_usd: String,
}

impl Counted {
    /// The sum.
    pub(super) fn sum(&self) -> Exact {
        let (mut tokens, mut calls) = (0_i128, 0_i128);
        // Most counts are zero.
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
        Exact(tokens.saturating_mul(self.factor()).saturating_add(calls))
    }

    /// The sum in whole pico-USD, if no factor changes it and it is small enough: so are nearly all. [`Counted::sum`] takes any.
    pub(super) fn plain(&self) -> Option<u64> {
        if self.factors != [Factor::ONE; 3] {
            return None;
        }
        let tokens = self.tokens.iter().map(|(_, count, price)| (*count, price.pico_usd()));
        let calls = self.calls.iter().map(|(_, count, price)| (*count, price.pico_usd()));
        let mut counted = tokens.chain(calls).filter(|(count, _)| *count > 0);
        counted.try_fold(0_u64, |sum, (count, price)| sum.checked_add(count.checked_mul(price)?))
    }

    /// A line for each count that is not zero. They add up to [`Counted::sum`].
    pub(super) fn lines(&self) -> Vec<PriceLine> {
        let factor = self.factor();
        let tokens = self.tokens.iter().filter(|(_, count, _)| *count > 0);
        let tokens = tokens.map(|(counted, count, price)| PriceLine {
            counted: Cow::Borrowed(*counted),
            count: *count,
            price_usd: price.to_string(),
            per: Cow::Borrowed("1M tokens"),
            factor: (factor != FACTORS_ONE).then(|| decimal(factor, EXACT_PLACES - 12)),
            cost_usd: Exact(product(*count, price.pico_usd()).saturating_mul(factor)).to_string(),
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
    /// So many calls at this price.
    pub(super) fn of_calls(counted: &'static str, count: u64, price: PerCall) -> Self {
        Self {
            counted: Cow::Borrowed(counted),
            count,
            price_usd: price.to_string(),
            per: Cow::Borrowed("call"),
            factor: None,
            cost_usd: Exact::of_calls(count, price).to_string(),
        }
    }
}

/// A sum of money in 10^-18 of a pico-USD, not rounded yet: prices are whole pico-USD, and three factors are in millionths.
///
/// It saturates at `i128::MAX`, which is far beyond [`NanoUsd::MAX`] in that unit: a sum that saturates is above the limit
/// anyway.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Exact(i128);

impl Exact {
    pub(super) const MAX: Self = Self(i128::MAX);

    /// The sum of both.
    #[must_use]
    pub(crate) fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// So many calls at this price.
    pub(super) fn of_calls(count: u64, price: PerCall) -> Self {
        Self(product(count, price.pico_usd()).saturating_mul(FACTORS_ONE))
    }

    /// Rounds up to whole nano-USD, at most [`NanoUsd::MAX`].
    pub(crate) fn rounded_up(self) -> NanoUsd {
        let unit = i128::from(PICO_PER_NANO).saturating_mul(FACTORS_ONE);
        let whole = self.0 / unit;
        let nanos = whole + i128::from(whole * unit != self.0);
        i64::try_from(nanos).map_or(NanoUsd::MAX, |nanos| NanoUsd::from_nanos(nanos).min(NanoUsd::MAX))
    }
}

/// USD, with no more places than it takes.
impl fmt::Display for Exact {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&decimal(self.0, EXACT_PLACES))
    }
}

/// So many pico-USD in whole nano-USD, rounded up, at most [`NanoUsd::MAX`].
pub(super) fn nanos_of_pico(pico: u64) -> NanoUsd {
    let nanos = i64::try_from(pico.div_ceil(PICO_PER_NANO.into())).unwrap_or(i64::MAX);
    NanoUsd::from_nanos(nanos).min(NanoUsd::MAX)
}

fn product(count: u64, price: u64) -> i128 {
    i128::from(count).saturating_mul(price.into())
}

/// A number of 10^-`places` and zero or more, as a decimal with no more places than it takes.
fn decimal(value: i128, places: usize) -> String {
    let digits = format!("{value:0>width$}", width = places + 1);
    let (whole, fraction) = digits.split_at(digits.len() - places);
    match fraction.trim_end_matches('0') {
        "" => whole.to_owned(),
        fraction => format!("{whole}.{fraction}"),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A number of any size up to the largest, small ones more often.
    fn number(most: u64) -> impl Strategy<Value = u64> {
        (0..=most, 0..64_u32).prop_map(|(number, shift)| number >> shift)
    }

    fn per_token() -> impl Strategy<Value = PerToken> {
        number(1_000_000_000_000).prop_map(|pico| {
            let (usd, rest) = (pico / 1_000_000, pico % 1_000_000);
            PerToken::parse(&format!("{usd}.{rest:06}")).unwrap()
        })
    }

    fn per_call() -> impl Strategy<Value = PerCall> {
        number(1_000_000_000_000_000).prop_map(|pico| {
            let (usd, rest) = (pico / 1_000_000_000_000, pico % 1_000_000_000_000);
            PerCall::parse(&format!("{usd}.{rest:012}")).unwrap()
        })
    }

    proptest! {
        #[test]
        fn a_sum_in_whole_pico_usd_is_the_exact_one(
            tokens in prop::collection::vec((number(u64::MAX), per_token()), 13),
            calls in prop::collection::vec((number(u64::MAX), per_call()), 5),
        ) {
            let counted = Counted {
                tokens: std::array::from_fn(|at| ("tokens", tokens[at].0, tokens[at].1)),
                calls: std::array::from_fn(|at| ("calls", calls[at].0, calls[at].1)),
                factors: [Factor::ONE; 3],
            };
            match counted.plain() {
                Some(pico) => prop_assert_eq!(nanos_of_pico(pico), counted.sum().rounded_up()),
                None => prop_assert_eq!(counted.sum().rounded_up(), NanoUsd::MAX),
            }
            let twice = Factor::parse("2").unwrap();
            let dearer = Counted { factors: [Factor::ONE, twice, Factor::ONE], ..counted };
            prop_assert_eq!(dearer.plain(), None);
        }
    }

    #[test]
    fn an_exact_sum_is_written_with_every_place_it_has() {
        let exact = |pico: i128| Exact(pico * FACTORS_ONE).to_string();
        assert_eq!(
            [0, 1, 1_000_000_000_000, 3_250_000_000_000].map(exact),
            ["0", "0.000000000001", "1", "3.25"]
        );
        assert_eq!(Exact(5).to_string(), "0.000000000000000000000000000005");
        assert_eq!(decimal(FACTORS_ONE / 2, 18), "0.5");
    }
}
