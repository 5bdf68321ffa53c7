//! Keys as the store has them: id, record and rotation, never the text itself.

#[cfg(test)]
mod tests;

use std::fmt;

use rand::CryptoRng;
use serde::{Deserialize, Serialize};
use smol_str::{SmolStr, format_smolstr};
use thiserror::Error;

use crate::domain::keys::{
    secret::{KeyDigest, base62_digit, random_base62},
    terms::KeyTerms,
};

/// Whether a key is active or revoked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum KeyState {
    /// The key works.
    Active,
    /// The key was revoked permanently.
    Revoked {
        /// The time, in seconds since the Unix epoch.
        at: i64,
    },
}

/// The record of a key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyRecord {
    /// The public identifier.
    pub id: KeyId,
    /// The name that its owner gave it.
    pub name: String,
    /// The account that pays.
    pub account: SmolStr,
    /// When it was created, in seconds since the Unix epoch.
    pub created_at: i64,
    /// When the key expires, in seconds since the Unix epoch; `None`: never. It does not work in that second.
    pub expires_at: Option<i64>,
    /// The models the key may use, by public name; `None`: all. An empty list allows none.
    pub models: Option<Vec<String>>,
    /// Whether the key is active or revoked.
    #[serde(flatten)]
    pub state: KeyState,
    /// The last characters of the key's random part, so that people can recognise the key.
    pub hint: String,
    /// Counts the changes to this record.
    pub revision: u64,
    /// Its quota and rate limits.
    #[serde(default)]
    pub terms: KeyTerms,
    /// The previous text, if the last rotation had an overlap. A version of weir that does not know this field drops it, which
    /// ends that text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub former: Option<PreviousKeyText>,
    /// When the present text was made, in seconds since the Unix epoch, if it is not the key's first one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text_since: Option<i64>,
}

/// Why a known key does not work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum KeyInvalid {
    /// The key was revoked.
    #[error("the key has been revoked")]
    Revoked,
    /// The presented text was replaced by a rotation, and its overlap has ended.
    #[error("the key was rotated, and its old text has ended")]
    Replaced,
    /// The key has expired.
    #[error("the key has expired")]
    Expired,
}

impl KeyRecord {
    /// Whether the key works with this text at `now_unix`. A revocation takes precedence over the other errors.
    pub fn check(&self, text: &KeyDigest, now_unix: i64) -> Result<(), KeyInvalid> {
        match (self.state, self.expires_at) {
            (KeyState::Revoked { .. }, _) => Err(KeyInvalid::Revoked),
            _ if self.is_ended_text(text, now_unix) => Err(KeyInvalid::Replaced),
            (KeyState::Active, Some(end)) if end <= now_unix => Err(KeyInvalid::Expired),
            (KeyState::Active, _) => Ok(()),
        }
    }

    /// Whether this is the key's previous text, and it has ended.
    pub fn is_ended_text(&self, text: &KeyDigest, now_unix: i64) -> bool {
        let former = self.former.as_ref();
        former.is_some_and(|former| former.digest == *text && !former.is_valid(now_unix))
    }

    /// The digest of the previous text, if it is still recorded.
    pub fn former_digest(&self) -> Option<KeyDigest> {
        self.former.as_ref().map(|former| former.digest)
    }

    /// The record after a rotation, at the next revision. `before` is the text that is replaced; an older one ends.
    pub fn rotated(&self, before: &KeyDigest, rotation: &Rotation) -> Self {
        let former = rotation.overlap_until.map(|until| PreviousKeyText {
            digest: *before,
            hint: self.hint.clone(),
            until,
        });
        Self {
            hint: rotation.hint.clone(),
            text_since: Some(rotation.at),
            revision: self.revision.saturating_add(1),
            former,
            ..self.clone()
        }
    }

    /// The record after the previous text was ended early; unchanged without a previous text.
    pub fn overlap_ended(&self) -> Self {
        match self.former {
            None => self.clone(),
            Some(_) => Self {
                former: None,
                text_since: None,
                revision: self.revision.saturating_add(1),
                ..self.clone()
            },
        }
    }

    /// The record after a revocation at `at`; unchanged if it is already revoked.
    pub fn revoked(&self, at: i64) -> Self {
        match self.state {
            KeyState::Revoked { .. } => self.clone(),
            KeyState::Active => Self {
                state: KeyState::Revoked { at },
                revision: self.revision.saturating_add(1),
                ..self.clone()
            },
        }
    }

    /// The record to store after the key was seen as `told` elsewhere; `None`: this record stays. The higher revision wins, and
    /// a revocation on either side wins over every revision, because it is permanent.
    pub fn merged_with(&self, told: &Self) -> Option<Self> {
        let is_newer = told.revision > self.revision;
        let later = if is_newer { told } else { self };
        let revoked = [self.state, told.state]
            .into_iter()
            .find(|state| matches!(state, KeyState::Revoked { .. }));
        match (later.state, revoked) {
            // This combination is new, so it gets a revision higher than both.
            (KeyState::Active, Some(state)) => Some(Self {
                state,
                revision: later.revision.saturating_add(1),
                ..later.clone()
            }),
            _ => is_newer.then(|| told.clone()),
        }
    }

    /// Whether the key may use the model of this public name.
    pub fn allows_model(&self, model: &str) -> bool {
        self.models
            .as_ref()
            .is_none_or(|models| models.iter().any(|allowed| allowed == model))
    }
}

/// A key with its last use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyView {
    /// The digest under which the key is found.
    pub digest: KeyDigest,
    /// The key's record.
    pub record: KeyRecord,
    /// When it was last used, in seconds since the Unix epoch, up to some seconds late; `None`: never.
    pub last_used: Option<i64>,
}

impl KeyView {
    /// Whether this is the key's present text, or its previous one while that is valid.
    pub(crate) fn has_text(&self, digest: &KeyDigest, now_unix: i64) -> bool {
        let former = self.record.former.as_ref();
        self.digest == *digest || former.is_some_and(|former| former.digest == *digest && former.is_valid(now_unix))
    }

    /// The digests of its texts: the present one, then the previous one.
    pub(crate) fn digests(&self) -> impl Iterator<Item = KeyDigest> {
        std::iter::once(self.digest).chain(self.record.former_digest())
    }

    /// The key to store after it was seen as `told` with this digest elsewhere, by the rules of [`KeyRecord::merged_with`]; `None`:
    /// this one stays. The text is that of the higher revision.
    pub(crate) fn merged_with(&self, digest: &KeyDigest, told: &KeyRecord) -> Option<Self> {
        let is_newer = told.revision > self.record.revision;
        Some(Self {
            digest: if is_newer { *digest } else { self.digest },
            record: self.record.merged_with(told)?,
            last_used: self.last_used,
        })
    }
}

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

/// The default overlap, in which the previous text stays valid, in seconds: a day, to deploy the new text wherever the key is
/// used.
pub(crate) const OVERLAP_DEFAULT_SECONDS: u64 = 24 * 3600;
/// The maximum overlap, in seconds: 30 days.
pub(crate) const OVERLAP_MAX_SECONDS: u64 = 30 * 24 * 3600;

/// How long a repeated request with the same seed gets the same key text again, in seconds: the first response may have been
/// lost.
pub(crate) const REPEATED_TEXT_SECONDS: i64 = 120;

/// A new text for a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rotation {
    /// The digest of the new text.
    pub digest: KeyDigest,
    /// The last characters of its random part.
    pub hint: String,
    /// The time of the rotation, in seconds since the Unix epoch.
    pub at: i64,
    /// When the previous text ends, in seconds since the Unix epoch; `None`: at once. It is no longer valid in that second.
    pub overlap_until: Option<i64>,
}

/// The text that a key had before its last rotation. It is valid until its end, like the present text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PreviousKeyText {
    /// The digest of the text.
    pub digest: KeyDigest,
    /// The last characters of its random part.
    pub hint: String,
    /// When it ends, in seconds since the Unix epoch. It is no longer valid in that second.
    pub until: i64,
}

impl PreviousKeyText {
    /// Whether it is still valid at `now_unix`.
    pub fn is_valid(&self, now_unix: i64) -> bool {
        now_unix < self.until
    }
}
