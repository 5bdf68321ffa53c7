//! Values that check themselves: one rule and one message for a body, a query, an option of the command line and a form.

use std::{fmt, str::FromStr};

use jiff::{Timestamp, civil::Date, tz::TimeZone};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};
use serde_json::Value;

use crate::domain::{
    keys::{
        key::KeyId,
        thresholds::{PERCENTS, Thresholds},
    },
    ledger::{FinishFactor, OnExhausted, OperationId, ProviderState, Rates, Reset},
    money::NanoUsd,
    sign_in::user_code::UserCode,
    version::Version,
    wire::model_name,
};

const ACCOUNT_CHARS_MAX: usize = 64;
const NAME_CHARS_MAX: usize = 128;
const REASON_CHARS_MAX: usize = 256;
const MODELS_MAX: usize = 1000;

/// A field that is named (`Some`) or not; what it is named as may be null.
pub(crate) type Given<T> = Option<Option<T>>;

/// Reads a [`Given`] field that is there.
pub(crate) fn given<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Given<T>, D::Error> {
    Option::deserialize(from).map(Some)
}

/// Has a type be read from a JSON text and written as one.
macro_rules! text_value {
    ($name:ident, $description:literal) => {
        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                let value = Value::deserialize(from)?;
                value.as_str().unwrap_or_default().parse().map_err(D::Error::custom)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.collect_str(self)
            }
        }

        schema!($name, { "type": "string", "description": $description });
    };
}

/// Says what a type is in JSON.
macro_rules! schema {
    ($name:ident, $schema:tt) => {
        impl JsonSchema for $name {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }

            fn inline_schema() -> bool {
                true
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!($schema)
            }
        }
    };
}

schema!(KeyId, { "type": "string", "pattern": "^key_[0-9A-Za-z]{16}$" });
schema!(Version, { "type": "string", "pattern": "^[0-9]+-[0-9a-f]{8}$" });
schema!(OperationId, { "type": "string", "pattern": "^[0-9A-Za-z._-]{1,64}$" });
schema!(NanoUsd, { "type": "integer", "description": "nano-USD, 10^-9 USD" });
schema!(Reset, { "type": "string", "enum": ["none", "daily", "weekly", "monthly"] });
schema!(OnExhausted, { "type": "string", "enum": ["finish", "cut"] });
schema!(ProviderState, { "type": "string", "enum": ["own", "any"] });

text_value!(UserCode, "the eight letters that the agent shows");

/// An amount in USD. A text, because a JSON number may have been through a float.
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
    /// A number of seconds since the Unix epoch; `None` beyond the years that can be written.
    pub(crate) fn of_seconds(seconds: i64) -> Option<Self> {
        Timestamp::from_second(seconds).ok().map(Self)
    }

    /// A number of milliseconds since the Unix epoch.
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

/// The name of an account. It is a segment of a path and the value of an option: `.` and `..` name no segment, and what begins
/// with `-` is an option itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct AccountId(String);

text_value!(
    AccountId,
    "1 to 64 letters, digits, `.`, `_` or `-`, the first of them neither `.` nor `-`"
);

impl FromStr for AccountId {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
        let is_long = text.is_empty() || text.len() > ACCOUNT_CHARS_MAX;
        if is_long || !text.bytes().all(plain) || text.starts_with(['.', '-']) {
            return Err(format!(
                "1 to {ACCOUNT_CHARS_MAX} letters, digits, `.`, `_` or `-`, the first of them neither `.` nor `-`"
            ));
        }
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Display for AccountId {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(&self.0)
    }
}

impl AccountId {
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

/// The name of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeyName(pub(crate) String);

text_value!(
    KeyName,
    "1 to 128 characters, one of them visible and none of them a control character"
);

impl FromStr for KeyName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        line(text, NAME_CHARS_MAX).map(Self)
    }
}

impl fmt::Display for KeyName {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(&self.0)
    }
}

/// The reason of an adjustment, for the audit record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reason(pub(crate) String);

text_value!(
    Reason,
    "1 to 256 characters, one of them visible and none of them a control character"
);

impl FromStr for Reason {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        line(text, REASON_CHARS_MAX).map(Self)
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(&self.0)
    }
}

/// 1 to `most` characters, one of them visible and none of them a control character.
fn line(text: &str, most: usize) -> Result<String, String> {
    let length = text.chars().count();
    if length > most || !text.chars().any(is_visible) || text.chars().any(char::is_control) {
        return Err(format!(
            "1 to {most} characters, one of them visible and none of them a control character"
        ));
    }
    Ok(text.to_owned())
}

/// Whether a character shows by itself: it is no space, and none of those that a font leaves out (Unicode's
/// Default_Ignorable_Code_Point) or draws as nothing.
fn is_visible(character: char) -> bool {
    let is_left_out = matches!(
        character,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}'
            | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{2800}' | '\u{3164}'
            | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fff8}' | '\u{1bca0}'..='\u{1bca3}'
            | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}'
    );
    !(is_left_out || character.is_whitespace() || character.is_control())
}

/// Has a type be read from a JSON value by `$read`, with `$message` where that is `None`, and from a text as that value.
macro_rules! json_value {
    ($name:ident, $message:expr, $read:expr) => {
        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                let read: fn(&Value) -> Result<Option<Self>, String> = $read;
                let read = read(&Value::deserialize(from)?).map_err(D::Error::custom)?;
                read.ok_or_else(|| D::Error::custom($message))
            }
        }
    };
}

/// A limit of requests, tokens or concurrency.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub(crate) struct Limit(pub(crate) u64);

schema!(Limit, { "type": "integer", "minimum": 1, "maximum": 1_000_000_000 });
json_value!(Limit, Limit::wanted(), |value| Self::of(value.as_u64()));

impl FromStr for Limit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::of(text.parse().ok())?.ok_or_else(|| format!("a whole number from 1 to {}", Rates::MAX))
    }
}

impl Limit {
    fn wanted() -> String {
        format!("a whole number from 1 to {}, or null for no limit", Rates::MAX)
    }

    fn of(number: Option<u64>) -> Result<Option<Self>, String> {
        if number == Some(0) {
            let why = "with 0 nothing would ever be admitted; suspend the account or revoke the key instead";
            return Err(why.to_owned());
        }
        Ok(number.filter(|limit| *limit <= Rates::MAX).map(Self))
    }
}

/// A factor by which a running answer may go beyond its key's allowance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub(crate) struct Factor(pub(crate) FinishFactor);

schema!(Factor, { "type": "integer", "minimum": 1, "maximum": 1000 });
json_value!(
    Factor,
    format!("a whole number from 1 to {}, or null for no bound", FinishFactor::MAX),
    |value| Ok(value.as_u64().and_then(FinishFactor::new).map(Self))
);

impl FromStr for Factor {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let factor = text.parse().ok().and_then(FinishFactor::new);
        factor
            .map(Self)
            .ok_or_else(|| format!("a whole number from 1 to {}", FinishFactor::MAX))
    }
}

/// Parts of a quota, in percent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub(crate) struct Percents(pub(crate) Thresholds);

schema!(Percents, { "type": "array", "items": { "enum": [50, 75, 80, 90, 95, 100] } });
json_value!(
    Percents,
    {
        let known = PERCENTS.map(|percent| percent.to_string()).join(", ");
        format!("a list of {known}, empty to be told nothing, or null for the default")
    },
    |value| {
        let percents = value.as_array();
        let percents = percents.and_then(|list| list.iter().map(Value::as_u64).collect::<Option<Vec<_>>>());
        Ok(percents.and_then(|percents| Thresholds::of(percents).ok()).map(Self))
    }
);

impl Percents {
    /// As it is typed: separated by commas, or `none`.
    pub(crate) fn in_words(self) -> String {
        let percents: Vec<String> = self.0.percents().map(|percent| percent.to_string()).collect();
        if percents.is_empty() {
            "none".to_owned()
        } else {
            percents.join(",")
        }
    }
}

/// Reads them separated by commas.
impl FromStr for Percents {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let percents = text.split(',').map(|percent| percent.trim().parse().ok());
        let percents = percents.collect::<Option<Vec<u64>>>();
        let chosen = percents.and_then(|percents| Thresholds::of(percents).ok());
        chosen.map(Self).ok_or_else(|| {
            let known = PERCENTS.map(|percent| percent.to_string()).join(", ");
            format!("some of {known}, separated by commas")
        })
    }
}

/// The models that a key may request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub(crate) struct ModelNames(pub(crate) Vec<String>);

schema!(ModelNames, { "type": "array", "items": { "type": "string" }, "minItems": 1, "maxItems": 1000 });
json_value!(
    ModelNames,
    format!("1 to {MODELS_MAX} model names, or null for all"),
    |value| {
        let list = value.as_array().filter(|list| (1..=MODELS_MAX).contains(&list.len()));
        let plausible = |name: &Value| {
            let name = name.as_str().filter(|name| model_name::is_plausible(name));
            name.map(str::to_owned)
        };
        Ok(list
            .and_then(|list| list.iter().map(plausible).collect::<Option<_>>())
            .map(Self))
    }
);

/// Reads them separated by commas.
impl FromStr for ModelNames {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let names: Vec<String> = text.split(',').map(|name| name.trim().to_owned()).collect();
        let is_fit = names.len() <= MODELS_MAX && names.iter().all(|name| model_name::is_plausible(name));
        let wanted = || format!("1 to {MODELS_MAX} model names, separated by commas");
        is_fit.then_some(Self(names)).ok_or_else(wanted)
    }
}
