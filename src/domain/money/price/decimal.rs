//! Decimal numbers in price lists, read as exact integers. A price is never a floating-point number.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use thiserror::Error;

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

/// A price per token, in pico-USD (10^-12 USD). A price list and JSON have it in USD per 1M tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, JsonSchema)]
#[schemars(with = "String", inline)]
pub(crate) struct TokenPrice(u64);

/// A price per call, in pico-USD (10^-12 USD). A price list and JSON have it in USD.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, JsonSchema)]
#[schemars(with = "String", inline)]
pub(crate) struct CallPrice(u64);

/// A multiplier of prices, in millionths. A price list and JSON have it as a decimal number.
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

/// The error that a string is not a price or a multiplier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub(crate) enum DecimalError {
    /// The value is not a decimal number in quotes.
    #[error(
        "write a decimal number in quotes, such as \"0.25\": digits and at most one point, without a sign or a comma"
    )]
    Malformed,
    /// The number has more decimal places than the maximum, which this variant contains.
    #[error("give at most {0} decimal places")]
    TooFine(usize),
    /// The number is larger than the maximum, which this variant contains.
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

/// Implements `Display`, `Serialize` and `Deserialize` of a number as the decimal text from which it is parsed.
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
mod tests {
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
