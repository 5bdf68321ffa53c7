//! Validated names and texts.

use std::{fmt, str::FromStr};

use rand::CryptoRng;
use serde::Serialize;
use serde_json::Value;

use super::schema::{json_value, schema, text_value};
use crate::domain::{
    keys::secret::{derived_base62, random_base62},
    wire::model_name,
};

const ACCOUNT_CHARS_MAX: usize = 64;
const NAME_CHARS_MAX: usize = 128;
const REASON_CHARS_MAX: usize = 256;
const MODELS_MAX: usize = 1000;

/// The name of an account. It is used as a path segment and as an option's value, so it is neither `.` nor `..` and does not
/// begin with `-`.
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
        check_line(text, NAME_CHARS_MAX).map(Self)
    }
}

impl fmt::Display for KeyName {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(&self.0)
    }
}

/// The reason of an adjustment, for the audit record.
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

/// Checks a text of 1 to `most` characters, with a visible one and without control characters.
fn check_line(text: &str, most: usize) -> Result<String, String> {
    let length = text.chars().count();
    if length > most || !text.chars().any(is_visible) || text.chars().any(char::is_control) {
        return Err(format!(
            "1 to {most} characters, one of them visible and none of them a control character"
        ));
    }
    Ok(text.to_owned())
}

/// Whether a character is visible by itself: not a space, and not one that fonts leave out (Unicode's
/// Default_Ignorable_Code_Point) or draw as nothing.
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

/// A random text from which the text of a new key is derived: sent again, it gives the same text. Only JSON shows it.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Seed(String);

text_value!(Seed, "43 letters or digits, drawn at random and kept secret");

impl Seed {
    /// The length of a seed: 43 characters of 62 carry 256 bits.
    pub(crate) const CHARS: usize = 43;

    /// A random seed.
    pub(crate) fn generate(rng: &mut impl CryptoRng) -> Self {
        Self(random_base62(Self::CHARS, rng))
    }

    /// The seed that is derived from a secret and a purpose.
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
        let wanted = || format!("{} letters or digits, drawn at random", Self::CHARS);
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

/// Reads names separated by commas or line ends. A name may contain spaces.
impl FromStr for ModelNames {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let names = text.split([',', '\n']).map(str::trim);
        let names: Vec<String> = names.filter(|name| !name.is_empty()).map(str::to_owned).collect();
        let is_fit = (1..=MODELS_MAX).contains(&names.len()) && names.iter().all(|name| model_name::is_plausible(name));
        let wanted = || format!("1 to {MODELS_MAX} model names, separated by commas");
        is_fit.then_some(Self(names)).ok_or_else(wanted)
    }
}
