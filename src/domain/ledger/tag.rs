//! Tags, with which clients mark their requests as those of a project, a team or a session.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The maximum number of tags of one request.
pub(crate) const TAGS_MAX: usize = 5;
const NAME_BYTES_MAX: usize = 32;
const VALUE_BYTES_MAX: usize = 64;
/// The name of the tag for a client's session. Sessions are many and short, so there are no daily sums for them.
pub(crate) const SESSION: &str = "session";

/// A tag in the form `name=value`. Neither part contains a space, a comma or a quote, so tags can be listed without escapes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Tag(String);

impl Tag {
    /// The rule for tags, in error messages.
    pub(crate) const RULE: &str = "name=value, the name 1 to 32 letters, digits, `.`, `_` or `-`, the value 1 to 64 of \
                                   these or of `:`, `/`, `@` and `+`";

    /// Parses a tag; `None` if `text` breaks [`Tag::RULE`].
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (name, value) = text.split_once('=')?;
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
        let of_value = |byte: u8| plain(byte) || matches!(byte, b':' | b'/' | b'@' | b'+');
        let fits = (1..=NAME_BYTES_MAX).contains(&name.len())
            && name.bytes().all(plain)
            && (1..=VALUE_BYTES_MAX).contains(&value.len())
            && value.bytes().all(of_value);
        fits.then(|| Self(text.to_owned()))
    }

    /// Creates the tag of a session; `None` if the session's id cannot be the value of a tag.
    pub(crate) fn of_session(id: &str) -> Option<Self> {
        Self::parse(&format!("{SESSION}={id}"))
    }

    /// Returns the tag as text.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether there are daily sums for the tag.
    pub(crate) fn is_summed(&self) -> bool {
        self.name() != SESSION
    }

    fn name(&self) -> &str {
        self.0.split_once('=').map_or("", |(name, _)| name)
    }
}

impl fmt::Display for Tag {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

impl TryFrom<String> for Tag {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        Self::parse(&text).ok_or(Self::RULE)
    }
}

impl From<Tag> for String {
    fn from(tag: Tag) -> Self {
        tag.0
    }
}

/// Why the tags of a request are refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TagsFault {
    /// A tag breaks [`Tag::RULE`].
    Malformed {
        /// The position of the tag in the list, counted from 1.
        place: usize,
    },
    /// The request has more than [`TAGS_MAX`] tags.
    TooMany,
}

impl fmt::Display for TagsFault {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed { place } => write!(out, "tag {place} is not valid: give {}", Tag::RULE),
            Self::TooMany => write!(out, "there are too many tags, give at most {TAGS_MAX}"),
        }
    }
}

/// Parses the values of a header that lists tags, separated by commas. A repeated tag is returned once, and empty members are
/// ignored (RFC 9110 section 5.6.1).
pub(crate) fn read<'a>(values: impl IntoIterator<Item = &'a str>) -> Result<Vec<Tag>, TagsFault> {
    let members = values.into_iter().flat_map(|value| value.split(',')).map(str::trim);
    let mut tags = Vec::new();
    for (index, member) in members.filter(|member| !member.is_empty()).enumerate() {
        let tag = Tag::parse(member).ok_or(TagsFault::Malformed { place: index + 1 })?;
        if !tags.contains(&tag) {
            if tags.len() == TAGS_MAX {
                return Err(TagsFault::TooMany);
            }
            tags.push(tag);
        }
    }
    Ok(tags)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(values: &[&str]) -> Result<Vec<String>, TagsFault> {
        read(values.iter().copied()).map(|tags| tags.into_iter().map(String::from).collect())
    }

    #[test]
    fn tags_are_listed_in_one_header_or_in_several() {
        assert_eq!(texts(&[]), Ok(vec![]));
        assert_eq!(
            texts(&[
                "project=blue, team=a/b",
                "",
                "  run=2026-11-22T10:00:00+01:00 ,,project=blue"
            ]),
            Ok(vec![
                "project=blue".to_owned(),
                "team=a/b".to_owned(),
                "run=2026-11-22T10:00:00+01:00".to_owned()
            ])
        );
    }

    #[test]
    fn names_values_and_number_have_limits() {
        let at = |name: usize, value: usize| Tag::parse(&format!("{}={}", "n".repeat(name), "v".repeat(value)));
        assert!(at(NAME_BYTES_MAX, VALUE_BYTES_MAX).is_some());
        assert!(at(NAME_BYTES_MAX + 1, 1).is_none() && at(1, VALUE_BYTES_MAX + 1).is_none());
        let many = |count: usize| (0..count).map(|n| format!("t=v{n}")).collect::<Vec<_>>().join(",");
        assert_eq!(texts(&[&many(TAGS_MAX)]).map(|tags| tags.len()), Ok(TAGS_MAX));
        assert_eq!(texts(&[&many(TAGS_MAX + 1)]), Err(TagsFault::TooMany));
    }

    #[test]
    fn what_is_no_tag_is_told_by_its_place() {
        for wrong in [
            "blue",
            "=blue",
            "project=",
            "pro ject=x",
            "p=a b",
            "p=\"x\"",
            "p=a=b",
            "é=x",
            "p=é",
            "p=a;b",
        ] {
            assert_eq!(
                texts(&["project=blue", wrong]),
                Err(TagsFault::Malformed { place: 2 }),
                "{wrong}"
            );
        }
    }

    #[test]
    fn sessions_are_in_no_sums() {
        assert!(!Tag::of_session("0b7c-4").unwrap().is_summed());
        assert!(Tag::parse("sessions=1").unwrap().is_summed());
        assert_eq!(Tag::of_session("a b"), None);
    }
}
