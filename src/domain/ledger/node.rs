//! The names of nodes, and the ids of operations.

use std::fmt;

use rand::CryptoRng;
use serde::{Deserialize, Serialize};
use smol_str::{SmolStr, format_smolstr};

use crate::domain::keys::secret::random_base62;

const NODE_PREFIX: &str = "node_";
const NODE_RANDOM_CHARS: usize = 16;

/// How long a node's holds count without a renewal, in milliseconds: the length of the node's own lease.
pub(crate) const LEASE_MS: i64 = 30_000;

/// The name of a node's journal: `node_` and 16 base 62 characters. Drawn once per journal folder.
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

    /// The name used where no journal has given one; it is never drawn.
    pub(crate) fn none() -> Self {
        Self(format_smolstr!("{NODE_PREFIX}{}", "0".repeat(NODE_RANDOM_CHARS)))
    }

    /// Parses a name; `None` if it has another form.
    pub fn parse(text: &str) -> Option<Self> {
        let random = text.strip_prefix(NODE_PREFIX)?;
        let fits = random.len() == NODE_RANDOM_CHARS && random.bytes().all(|byte| byte.is_ascii_alphanumeric());
        fits.then(|| Self(text.into()))
    }

    /// The name as text.
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
        Self::parse(&text).ok_or("a node's name is `node_` and 16 letters or digits")
    }
}

impl From<NodeId> for String {
    fn from(id: NodeId) -> Self {
        id.0.into()
    }
}
