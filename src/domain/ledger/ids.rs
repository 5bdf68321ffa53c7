//! The names of nodes, the ids of operations on balances, and the tags of requests.

use std::fmt;

use rand::CryptoRng;
use serde::{Deserialize, Serialize};
use smol_str::{SmolStr, format_smolstr};

use crate::domain::keys::secret::random_base62;

const NODE_PREFIX: &str = "node_";
const NODE_RANDOM_CHARS: usize = 16;

/// The length of a node lease in milliseconds. A node's holds are live for this time after the node's last renewal.
pub(crate) const LEASE_MS: i64 = 30_000;

/// The name of a node's journal: `node_` and 16 base 62 characters. It is drawn at random once for each journal folder.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct NodeId(SmolStr);

impl NodeId {
    /// Draws a random name.
    pub fn generate(rng: &mut impl CryptoRng) -> Self {
        Self(format_smolstr!(
            "{NODE_PREFIX}{}",
            random_base62(NODE_RANDOM_CHARS, rng)
        ))
    }

    /// Returns the name that stands for the absence of a journal. No journal ever has this name.
    pub(crate) fn none() -> Self {
        Self(format_smolstr!("{NODE_PREFIX}{}", "0".repeat(NODE_RANDOM_CHARS)))
    }

    /// Parses a name; `None` if `text` does not have the form of a name.
    pub fn parse(text: &str) -> Option<Self> {
        let random = text.strip_prefix(NODE_PREFIX)?;
        let fits = random.len() == NODE_RANDOM_CHARS && random.bytes().all(|byte| byte.is_ascii_alphanumeric());
        fits.then(|| Self(text.into()))
    }

    /// Returns the name as a string.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

impl TryFrom<String> for NodeId {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        Self::parse(&text).ok_or("the node's name is not `node_` and 16 letters or digits")
    }
}

impl From<NodeId> for String {
    fn from(id: NodeId) -> Self {
        id.0.into()
    }
}

const OPERATION_PREFIX: &str = "op_";
const OPERATION_RANDOM_CHARS: usize = 16;
const CHARS_MAX: usize = 64;

/// The id of an operation on a balance: 1 to 64 letters, digits, `.`, `_` or `-`. The caller chooses the id. While an account
/// remembers an id, it does not apply a second amount with this id ([`super::account::operations`]).
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct OperationId(String);

impl OperationId {
    /// The rule for ids, for error messages.
    pub const RULE: &str = "give 1 to 64 letters, digits, `.`, `_` or `-`";

    /// Draws a random id.
    pub fn generate(rng: &mut impl CryptoRng) -> Self {
        Self(format!(
            "{OPERATION_PREFIX}{}",
            random_base62(OPERATION_RANDOM_CHARS, rng)
        ))
    }

    /// Parses an id; `None` if `text` breaks [`OperationId::RULE`].
    pub fn parse(text: &str) -> Option<Self> {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
        let fits = (1..=CHARS_MAX).contains(&text.len()) && text.bytes().all(plain);
        fits.then(|| Self(text.to_owned()))
    }

    /// Returns the id as a string.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for OperationId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

impl std::str::FromStr for OperationId {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::parse(text).ok_or_else(|| Self::RULE.to_owned())
    }
}

impl TryFrom<String> for OperationId {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        Self::parse(&text).ok_or(Self::RULE)
    }
}

impl From<OperationId> for String {
    fn from(id: OperationId) -> Self {
        id.0
    }
}

/// The maximum number of tags of one request.
pub(crate) const TAGS_MAX: usize = 5;
const NAME_BYTES_MAX: usize = 32;
const VALUE_BYTES_MAX: usize = 64;
/// The name of the tag for a client's session. There are no daily sums for this tag, because there are many sessions and each of
/// them is short.
pub(crate) const SESSION: &str = "session";

/// A tag in the form `name=value`. Neither part contains a space, a comma or a quote, so lists of tags need no escapes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Tag(String);

impl Tag {
    /// The rule for tags, for error messages.
    pub(crate) const RULE: &str = "name=value, where the name has 1 to 32 letters, digits, `.`, `_` or `-`, and the value has \
                                   1 to 64 of these characters or of `:`, `/`, `@` and `+`";

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

    /// Creates the tag for a session; `None` if the session's id is not a valid tag value.
    pub(crate) fn of_session(id: &str) -> Option<Self> {
        Self::parse(&format!("{SESSION}={id}"))
    }

    /// Returns the tag as a string.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether daily sums are computed for the tag.
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

/// The reason why the tags of a request are refused.
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
            Self::TooMany => write!(out, "there are too many tags: give at most {TAGS_MAX}"),
        }
    }
}

/// Parses the values of a header that contains a list of tags, separated by commas. A repeated tag is returned once, and empty
/// list members are ignored (RFC 9110 section 5.6.1).
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
    use crate::domain::{ledger::AccountChange, money::NanoUsd};

    #[test]
    fn a_journal_that_knows_no_ids_is_read_and_written_as_before() {
        let amount = NanoUsd::from_nanos(5);
        for (json, change) in [
            (
                r#"{"op":"open","balance":5,"at":7}"#,
                AccountChange::Open {
                    balance: amount,
                    at: 7,
                    operation: None,
                },
            ),
            (
                r#"{"op":"credit","amount":5}"#,
                AccountChange::Credit {
                    amount,
                    at: 0,
                    operation: None,
                },
            ),
            (
                r#"{"op":"adjust","amount":5,"operation":"order-7"}"#,
                AccountChange::Adjust {
                    amount,
                    at: 0,
                    operation: OperationId::parse("order-7"),
                },
            ),
        ] {
            assert_eq!(serde_json::from_str::<AccountChange>(json).unwrap(), change);
            assert_eq!(serde_json::to_string(&change).unwrap(), json);
        }
    }

    #[test]
    fn an_id_is_short_and_plain() {
        let most = "x".repeat(CHARS_MAX);
        for text in [
            "a",
            "order-17.b_2",
            most.as_str(),
            OperationId::generate(&mut rand::rng()).as_str(),
        ] {
            assert!(OperationId::parse(text).is_some(), "{text}");
        }
        for text in ["", "a b", "a|b", "é", "x\n", &"x".repeat(CHARS_MAX + 1)] {
            assert!(OperationId::parse(text).is_none(), "{text}");
        }
    }

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
