//! The names of nodes, and the ids of operations on balances.

use std::fmt;

use rand::CryptoRng;
use serde::{Deserialize, Serialize};
use smol_str::{SmolStr, format_smolstr};

use crate::domain::keys::secret::random_base62;

const NODE_PREFIX: &str = "node_";
const NODE_RANDOM_CHARS: usize = 16;

/// The length of a node lease in milliseconds: a node's holds are live for this time after the node's last renewal.
pub(crate) const LEASE_MS: i64 = 30_000;

/// The name of a node's journal: `node_` and 16 base 62 characters. It is drawn once for each journal folder.
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

    /// Returns the name that stands for no journal. It is never drawn.
    pub(crate) fn none() -> Self {
        Self(format_smolstr!("{NODE_PREFIX}{}", "0".repeat(NODE_RANDOM_CHARS)))
    }

    /// Parses a name; `None` if `text` has another form.
    pub fn parse(text: &str) -> Option<Self> {
        let random = text.strip_prefix(NODE_PREFIX)?;
        let fits = random.len() == NODE_RANDOM_CHARS && random.bytes().all(|byte| byte.is_ascii_alphanumeric());
        fits.then(|| Self(text.into()))
    }

    /// Returns the name as text.
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

/// The id of an operation on a balance, chosen by the caller: 1 to 64 letters, digits, `.`, `_` or `-`. An account applies an
/// amount once for each id that it remembers ([`super::account::operations`]).
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct OperationId(String);

impl OperationId {
    /// The rule for ids, in error messages.
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

    /// Returns the id as text.
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
}
