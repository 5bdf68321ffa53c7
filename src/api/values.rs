//! Validated values: the same rule and message for a body, a query, a command-line option and a form.

use std::{fmt, str::FromStr};

use jiff::{Timestamp, civil::Date, tz::TimeZone};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use super::schema::{json_value, schema, text_value};
use crate::domain::{
    keys::thresholds::{PERCENTS, Thresholds},
    ledger::{FinishFactor, RateLimits},
    money::NanoUsd,
};

/// An optional field that may be null: `None` if it is absent, `Some(None)` if it is null.
pub(crate) type Nullable<T> = Option<Option<T>>;

/// Reads a [`Nullable`] field that is present.
pub(crate) fn nullable<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Nullable<T>, D::Error> {
    Option::deserialize(from).map(Some)
}

/// An amount in USD. In JSON a string, because a number may have been through a float.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Usd(pub(crate) NanoUsd);

text_value!(Usd, "USD, a decimal number with at most 9 places, such as 12.50");

impl FromStr for Usd {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Err("an amount in USD as a text, such as \"12.50\"".to_owned());
        }
        NanoUsd::parse_usd(text).map(Self).map_err(|error| error.to_string())
    }
}

impl fmt::Display for Usd {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(to)
    }
}

/// A time: RFC 3339, or a date for its first moment in UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment(pub(crate) Timestamp);

text_value!(Moment, "RFC 3339, or a date for its first moment in UTC");

impl Moment {
    /// From seconds since the Unix epoch; `None` if out of range.
    pub(crate) fn of_seconds(seconds: i64) -> Option<Self> {
        Timestamp::from_second(seconds).ok().map(Self)
    }

    /// From milliseconds since the Unix epoch; `None` if out of range.
    pub(crate) fn of_millis(millis: i64) -> Option<Self> {
        Timestamp::from_millisecond(millis).ok().map(Self)
    }

    /// Seconds since the Unix epoch.
    pub(crate) fn seconds(self) -> i64 {
        self.0.as_millisecond().div_euclid(1000)
    }
}

impl FromStr for Moment {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let of_date = || {
            let date: Date = text.parse().ok().filter(|_| text.len() == "2027-01-31".len())?;
            Some(date.to_zoned(TimeZone::UTC).ok()?.timestamp())
        };
        let time = text.parse().ok().or_else(of_date);
        let wanted = || "a time such as 2027-01-31T00:00:00Z, or a date".to_owned();
        time.map(Self).ok_or_else(wanted)
    }
}

impl fmt::Display for Moment {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(to)
    }
}

/// A limit of requests, tokens or concurrency.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub(crate) struct LimitInput(pub(crate) u64);

schema!(LimitInput, { "type": "integer", "minimum": 1, "maximum": 1_000_000_000 });
json_value!(LimitInput, LimitInput::expected(), |value| Self::of(value.as_u64()));

impl FromStr for LimitInput {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::of(text.parse().ok())?.ok_or_else(|| format!("a whole number from 1 to {}", RateLimits::MAX))
    }
}

impl LimitInput {
    fn expected() -> String {
        format!("a whole number from 1 to {}, or null for no limit", RateLimits::MAX)
    }

    fn of(number: Option<u64>) -> Result<Option<Self>, String> {
        if number == Some(0) {
            let why = "with 0 no request would be admitted; suspend the account or revoke the key instead";
            return Err(why.to_owned());
        }
        Ok(number.filter(|limit| *limit <= RateLimits::MAX).map(Self))
    }
}

/// The maximum cost of a running answer that may finish, as a multiple of its key's quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub(crate) struct FactorInput(pub(crate) FinishFactor);

schema!(FactorInput, { "type": "integer", "minimum": 1, "maximum": 1000 });
json_value!(
    FactorInput,
    format!("a whole number from 1 to {}, or null for no bound", FinishFactor::MAX),
    |value| Ok(value.as_u64().and_then(FinishFactor::new).map(Self))
);

impl FromStr for FactorInput {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let factor = text.parse().ok().and_then(FinishFactor::new);
        factor
            .map(Self)
            .ok_or_else(|| format!("a whole number from 1 to {}", FinishFactor::MAX))
    }
}

/// Percentages of a quota at which notices are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub(crate) struct Percents(pub(crate) Thresholds);

schema!(Percents, { "type": "array", "items": { "enum": [50, 75, 80, 90, 95, 100] } });
json_value!(
    Percents,
    {
        let known = PERCENTS.map(|percent| percent.to_string()).join(", ");
        format!("a list of {known}, empty for no notices, or null for the default")
    },
    |value| {
        let percents = value.as_array();
        let percents = percents.and_then(|list| list.iter().map(Value::as_u64).collect::<Option<Vec<_>>>());
        Ok(percents.and_then(|percents| Thresholds::of(percents).ok()).map(Self))
    }
);

impl Percents {
    /// The text form: separated by commas, or `none`.
    pub(crate) fn to_text(self) -> String {
        let percents: Vec<String> = self.0.percents().map(|percent| percent.to_string()).collect();
        if percents.is_empty() {
            "none".to_owned()
        } else {
            percents.join(",")
        }
    }
}

/// Reads percentages separated by commas or spaces, or `none`.
impl FromStr for Percents {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "none" {
            return Ok(Self(Thresholds::default()));
        }
        let percents = text.split([',', ' ']).filter(|percent| !percent.is_empty());
        let percents = percents.map(|percent| percent.parse().ok());
        let percents = percents.collect::<Option<Vec<u64>>>();
        let chosen = percents.and_then(|percents| Thresholds::of(percents).ok());
        chosen.map(Self).ok_or_else(|| {
            let known = PERCENTS.map(|percent| percent.to_string()).join(", ");
            format!("some of {known}, separated by commas, or none")
        })
    }
}
