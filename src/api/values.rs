//! Validated values of the admin API. A value has the same rule and error message in a JSON body, a query, a command-line option
//! and a form.

use std::{fmt, str::FromStr};

use jiff::{Timestamp, civil::Date, tz::TimeZone};
use rand::CryptoRng;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use crate::{
    api::{json_value, schema, text_value},
    domain::{
        keys::{
            secret::{derived_base62, random_base62},
            terms::{PERCENTS, Thresholds},
        },
        ledger::{FinishFactor, RateLimits},
        money::NanoUsd,
        wire::operation,
    },
};

/// An optional field that may be null: `None` if it is absent, `Some(None)` if it is null.
pub(crate) type Nullable<T> = Option<Option<T>>;

/// Deserializes a [`Nullable`] field that is present: null or a value.
pub(crate) fn nullable<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Nullable<T>, D::Error> {
    Option::deserialize(from).map(Some)
}

/// An amount in USD. In JSON it is a string, because a JSON number may have been rounded to binary floating point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Usd(pub(crate) NanoUsd);

text_value!(Usd, "USD, a decimal number with at most 9 places, such as 12.50");

impl FromStr for Usd {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Err("give an amount in USD as a string, such as \"12.50\"".to_owned());
        }
        NanoUsd::parse_usd(text).map(Self).map_err(|error| error.to_string())
    }
}

impl fmt::Display for Usd {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(to)
    }
}

/// A point in time. It is written according to RFC 3339. A date alone is also accepted, and means its first moment in UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment(pub(crate) Timestamp);

text_value!(Moment, "RFC 3339, or a date for its first moment in UTC");

impl Moment {
    /// Converts seconds since the Unix epoch; `None` if they are out of range.
    pub(crate) fn of_seconds(seconds: i64) -> Option<Self> {
        Timestamp::from_second(seconds).ok().map(Self)
    }

    /// Converts milliseconds since the Unix epoch; `None` if they are out of range.
    pub(crate) fn of_millis(millis: i64) -> Option<Self> {
        Timestamp::from_millisecond(millis).ok().map(Self)
    }

    /// Returns the seconds since the Unix epoch, rounded down.
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
        let wanted = || "give a time such as 2027-01-31T00:00:00Z, or a date".to_owned();
        time.map(Self).ok_or_else(wanted)
    }
}

/// Serializes a time with exactly three decimal places of the seconds, so that the strings sort in the order of the times.
pub(crate) fn with_millis<S: Serializer>(time: &Option<Moment>, to: S) -> Result<S::Ok, S::Error> {
    match time {
        Some(Moment(at)) => to.collect_str(&format_args!("{at:.3}")),
        None => to.serialize_none(),
    }
}

impl fmt::Display for Moment {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(to)
    }
}

/// A limit on requests per minute, tokens per minute or concurrent requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub(crate) struct LimitInput(pub(crate) u64);

schema!(LimitInput, { "type": "integer", "minimum": 1, "maximum": 1_000_000_000 });
json_value!(LimitInput, LimitInput::expected(), |value| Self::of(value.as_u64()));

impl FromStr for LimitInput {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::of(text.parse().ok())?.ok_or_else(|| format!("give a whole number from 1 to {}", RateLimits::MAX))
    }
}

impl LimitInput {
    fn expected() -> String {
        format!(
            "give a whole number from 1 to {}, or null for no limit",
            RateLimits::MAX
        )
    }

    fn of(number: Option<u64>) -> Result<Option<Self>, String> {
        if number == Some(0) {
            let why = "with 0 no request would be admitted; suspend the account or revoke the key instead";
            return Err(why.to_owned());
        }
        Ok(number.filter(|limit| *limit <= RateLimits::MAX).map(Self))
    }
}

/// The maximum cost of an answer that may finish after its key's quota is used up, as a multiple of that quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub(crate) struct FactorInput(pub(crate) FinishFactor);

schema!(FactorInput, { "type": "integer", "minimum": 1, "maximum": 1000 });
json_value!(
    FactorInput,
    format!(
        "give a whole number from 1 to {}, or null for no limit",
        FinishFactor::MAX
    ),
    |value| Ok(value.as_u64().and_then(FinishFactor::new).map(Self))
);

impl FromStr for FactorInput {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let factor = text.parse().ok().and_then(FinishFactor::new);
        factor
            .map(Self)
            .ok_or_else(|| format!("give a whole number from 1 to {}", FinishFactor::MAX))
    }
}

/// The percentages of a quota at which notices are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub(crate) struct Percents(pub(crate) Thresholds);

schema!(Percents, { "type": "array", "items": { "enum": [50, 75, 80, 90, 95, 100] } });
json_value!(
    Percents,
    {
        let known = PERCENTS.map(|percent| percent.to_string()).join(", ");
        format!("give a list with any of {known}, an empty list for no notices, or null for the default")
    },
    |value| {
        let percents = value.as_array();
        let percents = percents.and_then(|list| list.iter().map(Value::as_u64).collect::<Option<Vec<_>>>());
        Ok(percents.and_then(|percents| Thresholds::of(percents).ok()).map(Self))
    }
);

impl Percents {
    /// Formats the percentages, separated by commas. Returns `none` if there are no percentages.
    pub(crate) fn to_text(self) -> String {
        let percents: Vec<String> = self.0.percents().map(|percent| percent.to_string()).collect();
        if percents.is_empty() {
            "none".to_owned()
        } else {
            percents.join(",")
        }
    }
}

/// Parses percentages that are separated by commas or spaces, or `none`.
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
            format!("give any of {known}, separated by commas, or none")
        })
    }
}

const ACCOUNT_CHARS_MAX: usize = 64;
const NAME_CHARS_MAX: usize = 128;
const REASON_CHARS_MAX: usize = 256;
const MODELS_MAX: usize = 1000;

/// The name of an account. It cannot begin with `.` or `-`, because it is used as a path segment and as the value of a
/// command-line option.
#[derive(Clone, Debug, PartialEq, Eq)]
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
                "give 1 to {ACCOUNT_CHARS_MAX} letters, digits, `.`, `_` or `-`, the first of them neither `.` nor `-`"
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

/// The display name of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeyName(pub(crate) String);

text_value!(
    KeyName,
    "1 to 128 characters, one of them visible and none of them a control character"
);

impl FromStr for KeyName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        check_line(text, NAME_CHARS_MAX).map(Self)
    }
}

impl fmt::Display for KeyName {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(&self.0)
    }
}

/// The reason for an adjustment of a balance, for the audit record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AdjustmentReason(pub(crate) String);

text_value!(
    AdjustmentReason,
    "1 to 256 characters, one of them visible and none of them a control character"
);

impl FromStr for AdjustmentReason {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        check_line(text, REASON_CHARS_MAX).map(Self)
    }
}

impl fmt::Display for AdjustmentReason {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(&self.0)
    }
}

/// Checks that a string has 1 to `most` characters, at least one visible character, and no control character. Returns the string.
fn check_line(text: &str, most: usize) -> Result<String, String> {
    let length = text.chars().count();
    if length > most || !text.chars().any(is_visible) || text.chars().any(char::is_control) {
        return Err(format!(
            "give 1 to {most} characters, one of them visible and none of them a control character"
        ));
    }
    Ok(text.to_owned())
}

/// Returns whether a character is visible by itself. The following are not visible: spaces, characters that fonts leave out
/// (Unicode's Default_Ignorable_Code_Point), and characters with an empty glyph.
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

/// A random secret from which a new key is derived. A repeated request with the same seed gets the same key. The output of
/// `Debug` does not contain the seed.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Seed(String);

text_value!(Seed, "43 letters or digits, drawn at random and kept secret");

impl Seed {
    /// The number of characters of a seed. 43 random characters from an alphabet of 62 have 256 bits of entropy.
    pub(crate) const CHARS: usize = 43;

    /// Generates a random seed.
    pub(crate) fn generate(rng: &mut impl CryptoRng) -> Self {
        Self(random_base62(Self::CHARS, rng))
    }

    /// Derives a seed from a secret and a purpose.
    pub(crate) fn derived(secret: &[u8], purpose: &str) -> Self {
        Self(derived_base62(Self::CHARS, secret, purpose))
    }

    pub(crate) fn expose(&self) -> &str {
        &self.0
    }
}

impl FromStr for Seed {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let is_fit = text.len() == Self::CHARS && text.bytes().all(|byte| byte.is_ascii_alphanumeric());
        let wanted = || format!("give {} letters or digits, drawn at random", Self::CHARS);
        is_fit.then(|| Self(text.to_owned())).ok_or_else(wanted)
    }
}

impl fmt::Display for Seed {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(&self.0)
    }
}

impl fmt::Debug for Seed {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("Seed(..)")
    }
}

/// The names of the models that a key may request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub(crate) struct ModelNames(pub(crate) Vec<String>);

schema!(ModelNames, { "type": "array", "items": { "type": "string" }, "minItems": 1, "maxItems": 1000 });
json_value!(
    ModelNames,
    format!("give 1 to {MODELS_MAX} model names, or null for all"),
    |value| {
        let list = value.as_array().filter(|list| (1..=MODELS_MAX).contains(&list.len()));
        let plausible = |name: &Value| {
            let name = name.as_str().filter(|name| operation::is_plausible(name));
            name.map(str::to_owned)
        };
        Ok(list
            .and_then(|list| list.iter().map(plausible).collect::<Option<_>>())
            .map(Self))
    }
);

/// Parses names that are separated by commas or line breaks. A name can contain spaces.
impl FromStr for ModelNames {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let names = text.split([',', '\n']).map(str::trim);
        let names: Vec<String> = names.filter(|name| !name.is_empty()).map(str::to_owned).collect();
        let is_fit = (1..=MODELS_MAX).contains(&names.len()) && names.iter().all(|name| operation::is_plausible(name));
        let wanted = || format!("give 1 to {MODELS_MAX} model names, separated by commas");
        is_fit.then_some(Self(names)).ok_or_else(wanted)
    }
}
