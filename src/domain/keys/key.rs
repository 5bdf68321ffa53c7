//! A service key's record in the store: its owner and its rights, never the key itself.

use serde::{Deserialize, Serialize};
use smol_str::SmolStr;
use thiserror::Error;

pub use crate::domain::keys::key_id::KeyId;
use crate::domain::keys::rotation::{FormerText, Rotation};
use crate::domain::keys::secret::KeyDigest;
use crate::domain::keys::terms::KeyTerms;

#[cfg(test)]
mod tests;

/// Whether a key is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum KeyState {
    /// The key works.
    Active,
    /// The key was withdrawn, for good.
    Revoked {
        /// When, in seconds since the Unix epoch.
        at: i64,
    },
}

/// Everything known about a key but the key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyRecord {
    /// The public identifier.
    pub id: KeyId,
    /// What its owner calls it.
    pub name: String,
    /// The account that pays.
    pub account: SmolStr,
    /// In seconds since the Unix epoch.
    pub created_at: i64,
    /// The first second in which the key no longer works, since the Unix epoch; `None`: never.
    pub expires_at: Option<i64>,
    /// The models the key may ask for, by public name; `None`: all. An empty list allows none.
    pub models: Option<Vec<String>>,
    /// Whether the key is active or revoked.
    #[serde(flatten)]
    pub state: KeyState,
    /// The last characters of the key's random part, to recognise it by.
    pub hint: String,
    /// Counts the changes to this record.
    pub revision: u64,
    /// What it may spend, and how fast.
    #[serde(default)]
    pub terms: KeyTerms,
    /// The text before the present one, where the last rotation let it stay good for a while. A version of weir that does not
    /// know this leaves it out, and then that text has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub former: Option<FormerText>,
    /// When the present text was made, in seconds since the Unix epoch, if it is not the key's first one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text_since: Option<i64>,
}

/// Why a known key does not work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum KeyDenied {
    /// The key was revoked.
    #[error("the key has been revoked")]
    Revoked,
    /// The key has another text by now, and the time of the one that was presented is over.
    #[error("the key was rotated, and its old text has ended")]
    Replaced,
    /// The key has expired.
    #[error("the key has expired")]
    Expired,
}

impl KeyRecord {
    /// Whether the key works by this text of it at this moment, in seconds since the Unix epoch. Revoked is said before all else.
    pub fn check(&self, text: &KeyDigest, now_unix: i64) -> Result<(), KeyDenied> {
        match (self.state, self.expires_at) {
            (KeyState::Revoked { .. }, _) => Err(KeyDenied::Revoked),
            _ if self.has_replaced(text, now_unix) => Err(KeyDenied::Replaced),
            (KeyState::Active, Some(end)) if end <= now_unix => Err(KeyDenied::Expired),
            (KeyState::Active, _) => Ok(()),
        }
    }

    /// Whether this text of the key is its former one, whose time is over.
    pub fn has_replaced(&self, text: &KeyDigest, now_unix: i64) -> bool {
        let former = self.former.as_ref();
        former.is_some_and(|former| former.digest == *text && !former.is_good(now_unix))
    }

    /// The digest of the text before the present one, if it is kept.
    pub fn former_digest(&self) -> Option<KeyDigest> {
        self.former.as_ref().map(|former| former.digest)
    }

    /// The record after its key, which had the text `before`, got a new one, one revision later. An older text ends with that.
    pub fn rotated(&self, before: &KeyDigest, rotation: &Rotation) -> Self {
        let former = rotation.overlap_until.map(|until| FormerText {
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

    /// The record after its former text has ended before its time; one without stays as it is.
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

    /// The record after it was withdrawn at `at`; one that was withdrawn before stays as it is.
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

    /// What a store that has this record holds once it is told that the key stood as `told`; `None`: it stays as it is. The
    /// higher revision wins, and a revocation wins over every revision: it is for good, on whichever side it was seen.
    pub fn healed(&self, told: &Self) -> Option<Self> {
        let is_newer = told.revision > self.revision;
        let later = if is_newer { told } else { self };
        let revoked = [self.state, told.state]
            .into_iter()
            .find(|state| matches!(state, KeyState::Revoked { .. }));
        match (later.state, revoked) {
            // Neither side has had this combination, so it gets a revision that neither has.
            (KeyState::Active, Some(state)) => Some(Self {
                state,
                revision: later.revision.saturating_add(1),
                ..later.clone()
            }),
            _ => is_newer.then(|| told.clone()),
        }
    }

    /// Whether the key may ask for a model of this public name.
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
    /// When it was last used, in seconds since the Unix epoch; some seconds late, `None` if never.
    pub last_used: Option<i64>,
}

impl KeyView {
    /// Whether this is the key's text, or its former one while that is good.
    pub(crate) fn has_text(&self, digest: &KeyDigest, now_unix: i64) -> bool {
        let former = self.record.former.as_ref();
        self.digest == *digest || former.is_some_and(|former| former.digest == *digest && former.is_good(now_unix))
    }

    /// The digests of its texts, the present one first.
    pub(crate) fn digests(&self) -> impl Iterator<Item = KeyDigest> {
        std::iter::once(self.digest).chain(self.record.former_digest())
    }

    /// What a store that has this key holds once it is told that the key stood as `told` with this digest, as
    /// [`KeyRecord::healed`] decides; `None`: it stays as it is. The text is that of the later revision.
    pub(crate) fn healed(&self, digest: &KeyDigest, told: &KeyRecord) -> Option<Self> {
        let is_newer = told.revision > self.record.revision;
        Some(Self {
            digest: if is_newer { *digest } else { self.digest },
            record: self.record.healed(told)?,
            last_used: self.last_used,
        })
    }
}
