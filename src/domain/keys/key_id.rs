//! The public identifier of a key.

use std::fmt;

use rand::CryptoRng;
use serde::{Deserialize, Serialize};
use smol_str::{SmolStr, format_smolstr};
use thiserror::Error;

use crate::domain::keys::secret::{base62_digit, random_base62};

const KEY_ID_START: &str = "key_";
const KEY_ID_RANDOM_CHARS: usize = 16;

/// The public identifier of a key: `key_` and 16 base 62 characters. It grants nothing and may be logged.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String")]
pub struct KeyId(SmolStr);

impl KeyId {
    /// Draws a new id.
    pub fn generate(rng: &mut impl CryptoRng) -> Self {
        Self(format_smolstr!(
            "{KEY_ID_START}{}",
            random_base62(KEY_ID_RANDOM_CHARS, rng)
        ))
    }

    /// Derives an id from a digest; equal digests give equal ids.
    pub(crate) fn from_digest(digest: &[u8; 32]) -> Self {
        let bytes = digest.iter().take(KEY_ID_RANDOM_CHARS);
        let random: String = bytes.map(|byte| base62_digit(u32::from(*byte) % 62)).collect();
        Self(format_smolstr!("{KEY_ID_START}{random}"))
    }

    /// Parses an id from untrusted input.
    pub fn parse(text: &str) -> Result<Self, KeyIdError> {
        let random = text.strip_prefix(KEY_ID_START).ok_or(KeyIdError)?;
        if random.len() == KEY_ID_RANDOM_CHARS && random.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
            Ok(Self(text.into()))
        } else {
            Err(KeyIdError)
        }
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for KeyId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

impl fmt::Debug for KeyId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

impl std::str::FromStr for KeyId {
    type Err = KeyIdError;

    fn from_str(text: &str) -> Result<Self, KeyIdError> {
        Self::parse(text)
    }
}

impl TryFrom<String> for KeyId {
    type Error = KeyIdError;

    fn try_from(text: String) -> Result<Self, KeyIdError> {
        Self::parse(&text)
    }
}

/// The text is not a key id. The error does not repeat it, because somebody may have pasted the key instead of its id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("a key id is `key_` and 16 letters or digits, as `weir key list` shows it")]
pub struct KeyIdError;
