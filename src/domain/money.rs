//! Amounts of money as whole numbers of nano-USD, never floating-point numbers.

pub(crate) mod price;

use std::fmt;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The number of decimal places of an amount in USD. The last place is one nano-USD.
const PLACES: usize = 9;
/// The number of nano-USD in one USD.
pub(crate) const NANOS_PER_USD: i64 = 1_000_000_000;

/// An amount of money in nano-USD (10^-9 USD). A negative balance is a debt. In JSON, the amount is an integer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct NanoUsd(i64);

impl NanoUsd {
    /// An amount of zero.
    pub const ZERO: Self = Self(0);
    /// The largest balance, quota or charge: 2^53 - 1 nano-USD, about 9 million USD. The Lua scripts in Redis compute with
    /// doubles, which are exact up to this number (ARCHITECTURE.md, "Invariants").
    pub const MAX: Self = Self((1 << 53) - 1);

    /// Creates an amount of `nanos` nano-USD.
    pub const fn from_nanos(nanos: i64) -> Self {
        Self(nanos)
    }

    /// Returns the amount in nano-USD.
    pub const fn nanos(self) -> i64 {
        self.0
    }

    /// Parses a decimal number of USD with at most nine decimal places, such as `12`, `-0.25` or `0.000000001`.
    ///
    /// # Errors
    /// `text` is not such a number, or the amount is beyond ±[`NanoUsd::MAX`].
    pub fn parse_usd(text: &str) -> Result<Self, MoneyError> {
        let (negative, digits) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, "0"));
        let plain = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        if !plain(whole) || !plain(fraction) {
            return Err(MoneyError::Malformed);
        }
        if fraction.len() > PLACES {
            return Err(MoneyError::TooFine);
        }
        let number = |part: &str| part.parse::<i64>().map_err(|_| MoneyError::TooLarge);
        let scale = (fraction.len()..PLACES).fold(1, |scale, _| scale * 10);
        let nanos = number(whole)?
            .checked_mul(NANOS_PER_USD)
            .and_then(|nanos| nanos.checked_add(number(fraction).ok()? * scale))
            .filter(|nanos| *nanos <= Self::MAX.0)
            .ok_or(MoneyError::TooLarge)?;
        Ok(Self(if negative { -nanos } else { nanos }))
    }

    /// Returns the sum of both amounts; saturates on overflow.
    #[must_use]
    pub const fn saturating_add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// Returns this amount minus `other`; saturates on overflow.
    #[must_use]
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

/// Formats the amount in USD, with as many decimal places as needed and at least two: `0.25`, `12.00`, `-0.000000001`.
impl fmt::Display for NanoUsd {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.0 < 0 { "-" } else { "" };
        let nanos = self.0.unsigned_abs();
        let whole = nanos / NANOS_PER_USD.unsigned_abs();
        let fraction = format!("{:09}", nanos % NANOS_PER_USD.unsigned_abs());
        let trimmed = fraction.trim_end_matches('0');
        write!(out, "{sign}{whole}.{trimmed:0<2}")
    }
}

/// The error for a string that is not an amount of money.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum MoneyError {
    /// The string is not a decimal number.
    #[error("expected a decimal number in USD, such as 12.50")]
    Malformed,
    /// The number has more than nine decimal places.
    #[error("the amount has too many decimal places; give at most nine decimal places")]
    TooFine,
    /// The amount is beyond ±[`NanoUsd::MAX`].
    #[error("the amount is too large; give at most 9007199.254740991 USD")]
    TooLarge,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_read_and_written_exactly() {
        for (text, nanos, written) in [
            ("0", 0, "0.00"),
            ("12", 12_000_000_000, "12.00"),
            ("-0.25", -250_000_000, "-0.25"),
            ("0.000000001", 1, "0.000000001"),
            ("9007199.254740991", (1 << 53) - 1, "9007199.254740991"),
        ] {
            let amount = NanoUsd::parse_usd(text).unwrap();
            assert_eq!((amount.nanos(), amount.to_string().as_str()), (nanos, written));
        }
    }

    #[test]
    fn what_is_no_amount_is_said_so() {
        for (text, error) in [
            ("", MoneyError::Malformed),
            ("1.", MoneyError::Malformed),
            (".5", MoneyError::Malformed),
            ("+1", MoneyError::Malformed),
            ("1e3", MoneyError::Malformed),
            ("--1", MoneyError::Malformed),
            ("1.0000000001", MoneyError::TooFine),
            ("9007199.254740992", MoneyError::TooLarge),
            ("99999999999999999999", MoneyError::TooLarge),
        ] {
            assert_eq!(NanoUsd::parse_usd(text), Err(error), "{text}");
        }
    }
}
