//! Reads the usage reports of providers leniently: fields can be missing, of another type, negative, or absurdly large.

#[cfg(test)]
mod tests;

use std::borrow::Cow;

use smol_str::SmolStr;

use crate::domain::wire::{
    json_skip::{skip_space, skip_value, split_key, without_end},
    plain_run,
    usage::COUNT_MAX,
};

/// The maximum length of the name of a service tier, speed or geography, in bytes.
pub(in crate::domain) const NAME_BYTES_MAX: usize = 64;

/// A number with at most this many digits is always below [`COUNT_MAX`].
const EXACT_DIGITS_MAX: usize = 15;

/// The JSON text of a field's value in a report; empty if the field is missing. A lexer has checked the text's grammar. The text
/// is parsed when it is used, so that an invalid field does not affect others.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::domain) struct ReportField<'a>(&'a [u8]);

impl<'a> ReportField<'a> {
    /// Creates a field from the JSON text that a picker has stored. If the text is not UTF-8, the field counts as missing.
    pub(in crate::domain) fn from_json(json: &'a [u8]) -> Self {
        Self(if is_utf8(json) { json } else { &[] })
    }

    /// Returns the JSON text of the field.
    pub(in crate::domain) fn json(self) -> &'a [u8] {
        self.0
    }

    /// Reads this field as an object, and returns the object's fields with these names. Reads all of them in one pass. If the
    /// object contains a name several times, returns the last field with this name. Returns `None` if this field is not an
    /// object.
    pub(in crate::domain) fn object<const N: usize>(self, names: &[&str; N]) -> Option<[Self; N]> {
        let mut fields = [Self::default(); N];
        let behind = read_object(skip_space(self.0), 0, names, &mut fields)?;
        skip_space(behind).is_empty().then_some(fields)
    }

    /// Like [`Self::object`], but if this field is not an object, all returned fields are missing.
    pub(in crate::domain) fn fields<const N: usize>(self, names: &[&str; N]) -> [Self; N] {
        self.object(names).unwrap_or([Self::default(); N])
    }

    /// Like [`Self::object`], for each object in an array. Returns nothing if this field is not an array.
    pub(in crate::domain) fn objects<const N: usize>(self, names: &[&str; N]) -> impl Iterator<Item = [Self; N]> {
        let inside = self.0.strip_prefix(b"[");
        let mut rest = inside.map(skip_space).unwrap_or_default();
        let elements = std::iter::from_fn(move || {
            let element = rest;
            let behind = skip_value(element, 0)?;
            let next = skip_space(behind).strip_prefix(b",");
            rest = next.map(skip_space).unwrap_or_default();
            Some(Self(without_end(element, behind)))
        });
        elements.filter_map(|element| element.object(names))
    }

    /// Returns the field as a count; `None` if it is missing or not a count (see [`read_count`]).
    pub(in crate::domain) fn count(self) -> Option<u64> {
        read_count(self.0)
    }

    /// Whether the field is missing or `null`. An unreadable field is not absent.
    pub(in crate::domain) fn is_absent(self) -> bool {
        matches!(self.0, b"" | b"null")
    }

    /// Returns the field as a name; `None` if it is missing or not a name (see [`is_name`]).
    pub(in crate::domain) fn name(self) -> Option<SmolStr> {
        self.text().filter(|text| is_name(text)).map(SmolStr::from)
    }

    /// Returns the string in the field; `None` if it is missing or not a string.
    pub(in crate::domain) fn text(self) -> Option<Cow<'a, str>> {
        match self.0 {
            [b'"', inner @ .., b'"'] if plain_run(inner) == inner.len() => {
                std::str::from_utf8(inner).ok().map(Cow::Borrowed)
            }
            [b'"', ..] => serde_json::from_slice(self.0).ok().map(Cow::Owned),
            _ => None,
        }
    }
}

/// Reads the object at the beginning of `text`. `outer` is the number of containers around this object. Writes the value of each
/// of `names` to the same index of `fields`, and returns the text after the object. `None` if `text` does not begin with an
/// object, or a key is unreadable.
#[inline]
pub(in crate::domain::wire) fn read_object<'a>(
    text: &'a [u8],
    outer: usize,
    names: &[&str],
    fields: &mut [ReportField<'a>],
) -> Option<&'a [u8]> {
    let [b'{', inside @ ..] = text else { return None };
    let mut rest = skip_space(inside);
    if let [b'}', behind @ ..] = rest {
        return Some(behind);
    }
    loop {
        let (key, value) = split_key(rest)?;
        let behind = skip_value(value, outer + 1)?;
        if let Some(field) = name_index(key, names)?.and_then(|at| fields.get_mut(at)) {
            *field = ReportField(without_end(value, behind));
        }
        match skip_space(behind) {
            [b',', next @ ..] => rest = skip_space(next),
            [b'}', behind @ ..] => return Some(behind),
            _ => return None,
        }
    }
}

/// Whether JSON text is valid UTF-8.
pub(in crate::domain::wire) fn is_utf8(json: &[u8]) -> bool {
    json.is_ascii() || std::str::from_utf8(json).is_ok()
}

/// Returns the index of `key` in `names`, or `Some(None)` if `key` is not one of them. The key can contain escapes. `None` if the
/// key cannot be read.
fn name_index(key: &[u8], names: &[&str]) -> Option<Option<usize>> {
    let of = |key: &[u8]| names.iter().position(|name| name.as_bytes() == key);
    let known = of(key);
    if known.is_some() || !key.contains(&b'\\') {
        return Some(known);
    }
    let key: String = serde_json::from_slice(&[b"\"", key, b"\""].concat()).ok()?;
    Some(of(key.as_bytes()))
}

/// Whether `text` can be the name of a service tier, a speed or a geography: 1 to [`NAME_BYTES_MAX`] printable ASCII characters
/// without spaces. Other texts are ignored, because the name is stored in rows.
pub(in crate::domain) fn is_name(text: &str) -> bool {
    (1..=NAME_BYTES_MAX).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic())
}

/// Reads a JSON number as a count. Fractions are truncated. `None` if it is not a number, is negative, or is above [`COUNT_MAX`].
/// If a provider writes a negative number as an unsigned one, the number is above this maximum.
pub(in crate::domain) fn read_count(json: &[u8]) -> Option<u64> {
    if let 1..=EXACT_DIGITS_MAX = json.len() {
        let digit = |digit: &u8| digit.is_ascii_digit().then_some(u64::from(digit & 0x0f));
        let exact = json.iter().try_fold(0, |number, byte| Some(number * 10 + digit(byte)?));
        if exact.is_some() {
            return exact;
        }
    }
    let text = std::str::from_utf8(json).ok()?.trim();
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

/// The audio and image tokens that are part of another count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::domain) struct Modalities {
    pub(in crate::domain) audio: u64,
    pub(in crate::domain) image: u64,
}

impl Modalities {
    /// Reads a list of counts, each with its modality, as in a Gemini-style report.
    pub(in crate::domain) fn from_list(counts: ReportField<'_>) -> Self {
        let counts = counts.objects(&["modality", "tokenCount"]);
        counts.fold(Self::default(), |sum, [modality, count]| {
            let count = count.count().unwrap_or(0);
            match modality.text().as_deref() {
                Some("AUDIO") => Self {
                    audio: sum.audio.saturating_add(count),
                    ..sum
                },
                Some("IMAGE") => Self {
                    image: sum.image.saturating_add(count),
                    ..sum
                },
                _ => sum,
            }
        })
    }

    /// Reads a count of audio tokens and one of image tokens, as in a Responses report.
    pub(in crate::domain) fn from_counts(audio: ReportField<'_>, image: ReportField<'_>) -> Self {
        Self {
            audio: audio.count().unwrap_or(0),
            image: image.count().unwrap_or(0),
        }
    }

    /// Returns these counts, reduced so that their sum is at most `whole`, the count that includes them.
    #[must_use]
    pub(in crate::domain) fn at_most(self, whole: u64) -> Self {
        let image = self.image.min(whole);
        let audio = self.audio.min(whole - image);
        Self { audio, image }
    }

    /// Returns the difference between these counts and `other`; zero where `other` is larger.
    #[must_use]
    pub(in crate::domain) fn minus(self, other: Self) -> Self {
        Self {
            audio: self.audio.saturating_sub(other.audio),
            image: self.image.saturating_sub(other.image),
        }
    }

    /// Returns the part of the count `whole` that is neither audio nor image tokens.
    pub(in crate::domain) fn remaining(self, whole: u64) -> u64 {
        whole.saturating_sub(self.audio).saturating_sub(self.image)
    }
}
