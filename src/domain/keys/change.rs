//! Changes of a key: what is asked for, which state of the key it was decided on, and what becomes of the key.

use thiserror::Error;

use crate::domain::keys::key::{KeyId, KeyRecord, KeyView};
use crate::domain::keys::rotation::Rotation;
use crate::domain::keys::secret::KeyDigest;
use crate::domain::keys::terms::KeyTermsChange;
use crate::domain::version::Version;

/// A change of a key. Any but [`KeyChange::Update`] is an operator's as well as its owner's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyChange {
    /// Sets what the update names, and nothing else. The state, the text and the time of creation stay.
    Update {
        /// The new values.
        update: KeyUpdate,
        /// Who asks.
        by: ChangedBy,
    },
    /// Gives the key a new text. The one before stays good if the rotation has an overlap; one that was replaced before that
    /// ends.
    Rotate(Rotation),
    /// Ends the text before the present one.
    EndOverlap,
    /// Withdraws the key for good.
    Revoke {
        /// When, in seconds since the Unix epoch.
        at: i64,
    },
}

/// Who asks for an update.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangedBy {
    /// An operator, who may set any value.
    Operator,
    /// The owner of the key, who can lower a limit and never raise one.
    Owner,
}

/// The state of a key that a change was decided on. A change of any other state is not made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MadeFrom {
    /// Any state.
    Anything,
    /// The key at this version.
    Version(Version),
    /// The key as long as its present text has this digest.
    Text(KeyDigest),
}

/// Why a change is not made.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum NotChanged {
    /// The key is at another version than the one that the change was made from.
    #[error("{id} has changed since version {from} and is at {now}: nothing was changed; weir key show {id}")]
    Stale {
        /// The key.
        id: KeyId,
        /// The version that the change was made from.
        from: Version,
        /// The present one.
        now: Version,
    },
    /// The key has another text than the one that the change was made from.
    #[error("this was begun with the key's old text: sign in with the new one to change the key")]
    OldText,
    /// An owner wants to raise this limit.
    #[error("the owner of a key can lower a limit, and only an operator can raise it")]
    Raises(&'static str),
    /// A period without a quota limits nothing, and is most often a forgotten quota.
    #[error("only a quota begins anew, and this key has none; give it one, or no reset")]
    ResetWithoutQuota,
    /// The key's new text is the one before its present text.
    #[error("the key had this text before, draw a new one")]
    FormerText,
}

/// The values of a key that can be set; `None` leaves one as it is. The account stays: what a key has spent is counted there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyUpdate {
    /// A new name.
    pub name: Option<String>,
    /// Another end, or none.
    pub expires_at: Option<Option<i64>>,
    /// Another list of models, or all of them.
    pub models: Option<Option<Vec<String>>>,
    /// Other limits.
    pub terms: KeyTermsChange,
}

impl KeyUpdate {
    /// The record after the update, one revision later; one that has these values already stays as it is.
    fn apply(&self, record: &KeyRecord) -> KeyRecord {
        let updated = KeyRecord {
            name: self.name.clone().unwrap_or_else(|| record.name.clone()),
            expires_at: self.expires_at.unwrap_or(record.expires_at),
            models: self.models.clone().unwrap_or_else(|| record.models.clone()),
            terms: self.terms.apply(record.terms),
            ..record.clone()
        };
        let revision = record.revision.saturating_add(u64::from(updated != *record));
        KeyRecord { revision, ..updated }
    }
}

impl KeyView {
    /// The key after this change. One that is so already stays as it is, whatever the change was made from: a change that is
    /// sent again does no harm.
    ///
    /// # Errors
    /// The change was made from another state of the key, or must not be made of this one.
    pub fn after(&self, change: &KeyChange, from: &MadeFrom) -> Result<Self, NotChanged> {
        let before = &self.record;
        let (digest, record) = match change {
            KeyChange::Update { update, .. } => (self.digest, update.apply(before)),
            KeyChange::Rotate(rotation) if rotation.digest == self.digest => (self.digest, before.clone()),
            KeyChange::Rotate(rotation) => (rotation.digest, before.rotated(&self.digest, rotation)),
            KeyChange::EndOverlap => (self.digest, before.overlap_ended()),
            KeyChange::Revoke { at } => (self.digest, before.revoked(*at)),
        };
        if record == *before {
            return Ok(self.clone());
        }
        self.check_made_from(from)?;
        match change {
            KeyChange::Update { update, .. } if update.terms.reset.is_some() && record.terms.lacks_quota() => {
                return Err(NotChanged::ResetWithoutQuota);
            }
            KeyChange::Update {
                by: ChangedBy::Owner, ..
            } => raised(before, &record).map_or(Ok(()), Err)?,
            KeyChange::Rotate(rotation) if before.former_digest() == Some(rotation.digest) => {
                return Err(NotChanged::FormerText);
            }
            _ => {}
        }
        Ok(Self {
            digest,
            record,
            last_used: self.last_used,
        })
    }

    /// Whether the key is still in the state that a change was made from.
    ///
    /// # Errors
    /// It is in another one.
    pub fn check_made_from(&self, from: &MadeFrom) -> Result<(), NotChanged> {
        let now = self.version();
        match *from {
            MadeFrom::Version(from) if from != now => Err(NotChanged::Stale {
                id: self.record.id.clone(),
                from,
                now,
            }),
            MadeFrom::Text(digest) if digest != self.digest => Err(NotChanged::OldText),
            MadeFrom::Anything | MadeFrom::Version(_) | MadeFrom::Text(_) => Ok(()),
        }
    }

    /// The version of the key: another one after each change of its record or its text, and the same after a use.
    pub fn version(&self) -> Version {
        // A record is a value that JSON can write.
        let content = serde_json::to_vec(&(self.digest, &self.record)).unwrap_or_default();
        Version::new(self.record.revision, crc32fast::hash(&content))
    }
}

/// A limit that is higher afterwards; none at all is the highest.
fn raised(before: &KeyRecord, after: &KeyRecord) -> Option<NotChanged> {
    fn rises<T: Ord>(old: Option<T>, new: Option<T>) -> bool {
        old.is_some_and(|old| new.is_none_or(|new| new > old))
    }
    let (old, new) = (before.terms, after.terms);
    let limits = [
        ("quota_usd", rises(old.quota, new.quota)),
        ("rpm", rises(old.rates.rpm, new.rates.rpm)),
        ("tpm", rises(old.rates.tpm, new.rates.tpm)),
        ("concurrency", rises(old.rates.concurrency, new.rates.concurrency)),
        ("expires_at", rises(before.expires_at, after.expires_at)),
    ];
    let field = limits.into_iter().find_map(|(field, rises)| rises.then_some(field));
    field.map(NotChanged::Raises)
}

#[cfg(test)]
mod tests;
