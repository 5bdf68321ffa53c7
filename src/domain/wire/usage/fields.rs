//! Lenient reading of what providers report: fields may be missing, of another type, negative, or absurdly large.

use serde_json::value::RawValue;
use smol_str::SmolStr;

use crate::domain::wire::usage::{
    COUNT_MAX,
    members::{Member, members},
};

/// Bytes of the longest name of a tier, speed or geography that is kept.
pub(in crate::domain) const NAME_BYTES_MAX: usize = 64;

/// A JSON object whose values are read when they are asked for, so that one bad value spoils no other.
#[derive(Debug, Default)]
pub(in crate::domain) struct Fields<'a> {
    /// In the order of the text. Few enough that looking them through is quicker than an index.
    values: Vec<Member<'a>>,
}

impl<'a> Fields<'a> {
    /// The fields of an object that a picker has kept, or of a part of it. `None` when the text is not an object.
    pub(in crate::domain) fn parse(json: &'a [u8]) -> Option<Self> {
        Self::of_text(std::str::from_utf8(json).ok()?)
    }

    fn of_text(json: &'a str) -> Option<Self> {
        members(json).map(|values| Self { values })
    }

    /// A value as it is written; of a repeated key the last one.
    fn get(&self, key: &str) -> Option<&'a str> {
        let value = self.values.iter().rfind(|(name, _)| name == key);
        value.map(|(_, value)| *value)
    }

    /// A count; `None` when it is missing or none (see [`count`]).
    pub(in crate::domain) fn count(&self, key: &str) -> Option<u64> {
        count(self.get(key)?)
    }

    /// Whether a value is missing or `null`, which is no number that cannot be believed.
    pub(in crate::domain) fn is_absent(&self, key: &str) -> bool {
        self.get(key).is_none_or(|value| value == "null")
    }

    /// A short name; `None` when it is missing or none (see [`is_name`]).
    pub(in crate::domain) fn name(&self, key: &str) -> Option<SmolStr> {
        let json = self.get(key)?;
        let inner = json.strip_prefix('"')?.strip_suffix('"')?;
        if inner.contains('\\') {
            let name: SmolStr = serde_json::from_str(json).ok()?;
            return Some(name).filter(|name| is_name(name));
        }
        is_name(inner).then(|| inner.into())
    }

    /// A string; `None` when it is missing or none.
    pub(in crate::domain) fn text(&self, key: &str) -> Option<String> {
        serde_json::from_str(self.get(key)?).ok()
    }

    /// An object; an empty one when it is missing or none.
    pub(in crate::domain) fn object(&self, key: &str) -> Self {
        self.get(key).and_then(Fields::of_text).unwrap_or_default()
    }

    /// The objects in an array; none when it is missing or none.
    pub(in crate::domain) fn objects(&self, key: &str) -> Vec<Self> {
        let elements: Vec<&RawValue> = self
            .get(key)
            .and_then(|value| serde_json::from_str(value).ok())
            .unwrap_or_default();
        elements
            .into_iter()
            .filter_map(|element| Fields::of_text(element.get()))
            .collect()
    }
}

/// Whether a text may be the name of a service tier, a speed or a geography: it goes into rows that are kept, so it is 1 to
/// [`NAME_BYTES_MAX`] printable characters without spaces.
pub(in crate::domain) fn is_name(text: &str) -> bool {
    (1..=NAME_BYTES_MAX).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic())
}

/// A JSON number as a count: fractions are cut. `None` when it is not a number, negative (as an unsigned number, too), or above
/// [`COUNT_MAX`].
pub(in crate::domain) fn count(json: &str) -> Option<u64> {
    let text = match json.as_bytes() {
        [b'0'..=b'9', ..] => json,
        _ => json.trim(),
    };
    if !text.starts_with(|first: char| first == '-' || first.is_ascii_digit()) {
        return None;
    }
    if let Ok(exact) = text.parse::<u64>() {
        return Some(exact).filter(|exact| *exact <= COUNT_MAX);
    }
    let range = 0.0..=9_007_199_254_740_992.0;
    let number = text.parse::<f64>().ok().filter(|number| range.contains(number))?;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "within 0..=2^53")]
    let count = number as u64;
    Some(count)
}
