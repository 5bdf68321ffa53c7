//! Changes of a key: the change, its precondition, and the resulting key.

#[cfg(test)]
mod tests;

use sha2::{Digest, Sha256};
use thiserror::Error;

use crate::domain::{
    Version,
    keys::{
        KeyId, KeyRecord, KeyState, KeyView, Rotation,
        secret::KeyDigest,
        terms::{KeyTerms, KeyTermsChange},
    },
};

/// A change of a key. Operators and the key's owner are allowed to make each of these changes. In a [`KeyChange::Update`], the
/// owner is allowed to change fewer values than an operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyChange {
    /// Sets the values that the update contains. The key's state, secret and creation time do not change.
    Update {
        /// The new values.
        update: KeyUpdate,
        /// The author of the update.
        by: ChangeAuthor,
    },
    /// Replaces the key's secret with a new one. If the rotation has an overlap, the replaced secret stays valid during the
    /// overlap. Any older secret becomes invalid at once.
    Rotate(Rotation),
    /// Invalidates the previous secret at once.
    EndOverlap,
    /// Revokes the key permanently.
    Revoke {
        /// The time of the revocation, in seconds since the Unix epoch.
        at: i64,
    },
}

/// The author of an update.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeAuthor {
    /// An operator, who is allowed to set any value.
    Operator,
    /// The owner of the key, who is allowed to lower limits but not to raise them.
    Owner,
}

/// The state that a key must have for a change. If the key has another state, the change is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangePrecondition {
    /// The key can be in any state.
    Anything,
    /// The key must have this version.
    Version(Version),
    /// The key's current secret must have this digest.
    Text(KeyDigest),
}

/// The reason why a change of a key is refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum KeyChangeError {
    /// The key no longer has the version on which the change is based.
    #[error(
        "nothing was changed, because key {id} now has version {now} and not version {from}; `weir key show {id}` prints the current values"
    )]
    Stale {
        /// The id of the key.
        id: KeyId,
        /// The version on which the change is based.
        from: Version,
        /// The current version of the key.
        now: Version,
    },
    /// The key no longer has the secret that the change requires.
    #[error("the key was not changed, because you are signed in with its old secret; sign in with the new one")]
    OldText,
    /// The owner of the key tried to raise a limit. The value is the name of the limit's field.
    #[error("the owner of a key can only lower its limits: ask an operator to raise a limit")]
    Raises(&'static str),
    /// The update sets a reset period for a key without a quota. The period would have no effect, and the quota was probably
    /// forgotten.
    #[error("a reset period requires a quota, but the key has no quota; set a quota, or leave out the reset period")]
    ResetWithoutQuota,
    /// The new secret is the key's previous secret.
    #[error(
        "the key was not rotated, because the new secret is the same as the previous secret; rotate the key with another seed"
    )]
    TextReused,
}

/// New values for a key; `None` does not change a value. The key's account cannot be changed, because the key's spending is
/// stored in its account.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyUpdate {
    /// The new name.
    pub name: Option<String>,
    /// The new expiry time, in seconds since the Unix epoch; `Some(None)` removes the expiry.
    pub expires_at: Option<Option<i64>>,
    /// The new list of models; `Some(None)` allows all models.
    pub models: Option<Option<Vec<String>>>,
    /// The changes of the limits.
    pub terms: KeyTermsChange,
}

impl KeyUpdate {
    /// Returns the record after the update, with the next revision. If the record already has these values, it is returned
    /// unchanged.
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
    /// Returns the key after `change`. If the key already has the new values, it is returned unchanged and `from` is not checked.
    /// So a repeated change has no effect.
    ///
    /// # Errors
    /// The key does not meet the precondition `from`, or its state does not allow the change.
    pub fn apply_change(&self, change: &KeyChange, from: &ChangePrecondition) -> Result<Self, KeyChangeError> {
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
        self.check_precondition(from)?;
        match change {
            KeyChange::Update { update, .. }
                if update.terms.reset.is_some() && record.terms.has_reset_without_quota() =>
            {
                return Err(KeyChangeError::ResetWithoutQuota);
            }
            KeyChange::Update {
                by: ChangeAuthor::Owner,
                ..
            } => raised_limit(before, &record).map_or(Ok(()), Err)?,
            KeyChange::Rotate(rotation) if before.former_digest() == Some(rotation.digest) => {
                return Err(KeyChangeError::TextReused);
            }
            _ => {}
        }
        Ok(Self {
            digest,
            record,
            last_used: self.last_used,
        })
    }

    /// Checks the precondition of a change.
    ///
    /// # Errors
    /// The key does not meet the precondition.
    pub fn check_precondition(&self, from: &ChangePrecondition) -> Result<(), KeyChangeError> {
        let now = self.version();
        match *from {
            ChangePrecondition::Version(from) if from != now => Err(KeyChangeError::Stale {
                id: self.record.id.clone(),
                from,
                now,
            }),
            ChangePrecondition::Text(digest) if digest != self.digest => Err(KeyChangeError::OldText),
            ChangePrecondition::Anything | ChangePrecondition::Version(_) | ChangePrecondition::Text(_) => Ok(()),
        }
    }

    /// Returns the version of the key. The version changes when the key's record or secret changes, but not when the key is used.
    pub fn version(&self) -> Version {
        // A record can always be written as JSON, so the default is never used.
        let content = serde_json::to_vec(&(self.digest, &self.record)).unwrap_or_default();
        Version::new(self.record.revision, crc32fast::hash(&content))
    }
}

/// Returns an error for the first limit that is higher in `after` than in `before`; `None` if no limit is raised. A removed limit
/// counts as raised.
fn raised_limit(before: &KeyRecord, after: &KeyRecord) -> Option<KeyChangeError> {
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
    field.map(KeyChangeError::Raises)
}

/// The maximum length of a key's name, in characters.
const NAME_CHARS_MAX: usize = 128;

/// The template for the key of a user who signs in with an OpenID provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeyTemplate {
    /// The account that pays for the key's requests.
    pub account: String,
    /// The models that the key may request; `None` for all.
    pub models: Option<Vec<String>>,
    /// The key's quota and rate limits.
    pub terms: KeyTerms,
    /// The groups of the OpenID provider whose members get a key; `None` if every user gets one.
    pub groups: Option<Vec<String>>,
}

/// A user's identity at an OpenID provider.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OidcIdentity<'p> {
    /// The issuer URL of the OpenID provider, as the provider states it.
    pub issuer: &'p str,
    /// The user's identifier at the OpenID provider. The provider never assigns it to another user.
    pub subject: &'p str,
    /// The user's name at the OpenID provider.
    pub name: &'p str,
}

impl OidcIdentity<'_> {
    /// Returns the id of the user's key. It never changes, and is the same on every node.
    pub(crate) fn key_id(&self) -> KeyId {
        let mut hash = Sha256::new();
        // Each part is hashed separately and so has a fixed length. Otherwise, two identities could have the same encoding.
        hash.update(Sha256::digest(self.issuer));
        hash.update(Sha256::digest(self.subject));
        KeyId::from_digest(&hash.finalize().into())
    }
}

impl KeyTemplate {
    /// Creates the record of the user's key. `hint` contains the last characters of the key, and `now` is in seconds since the
    /// Unix epoch.
    pub(crate) fn record(&self, person: &OidcIdentity<'_>, hint: String, now: i64) -> KeyRecord {
        let visible = person.name.chars().filter(|char| !char.is_control());
        let name: String = visible.take(NAME_CHARS_MAX).collect();
        KeyRecord {
            id: person.key_id(),
            name: if name.is_empty() {
                "a person's key".to_owned()
            } else {
                name
            },
            account: self.account.as_str().into(),
            created_at: now,
            expires_at: None,
            models: self.models.clone(),
            state: KeyState::Active,
            hint,
            // This revision is higher than that of any deleted key with the same id. Journals and accounts may still contain such
            // a key.
            revision: u64::try_from(now).unwrap_or_default(),
            terms: self.terms,
            former: None,
            text_since: None,
        }
    }
}

#[cfg(test)]
mod template_tests {
    use super::*;

    fn person<'p>(issuer: &'p str, subject: &'p str, name: &'p str) -> OidcIdentity<'p> {
        OidcIdentity { issuer, subject, name }
    }

    #[test]
    fn a_person_is_issuer_and_subject_and_nothing_else() {
        let ada = person("https://a", "1", "Ada").key_id();
        assert_eq!(person("https://a", "1", "Countess").key_id(), ada);
        for other in [
            ("https://a", "2"),
            ("https://b", "1"),
            ("https://a1", ""),
            ("", "https://a1"),
        ] {
            assert_ne!(person(other.0, other.1, "Ada").key_id(), ada, "{other:?}");
        }
        assert_eq!(KeyId::parse(ada.as_str()), Ok(ada));
    }

    #[test]
    fn a_name_is_one_line_of_a_key() {
        let template = KeyTemplate {
            account: "people".to_owned(),
            models: None,
            terms: KeyTerms::default(),
            groups: None,
        };
        let later = template.record(&person("i", "s", "Ada"), "abcd".to_owned(), 1_800_000_000);
        assert_eq!(later.revision, 1_800_000_000, "above that of any before");
        let named = |name: &str| template.record(&person("i", "s", name), "abcd".to_owned(), 1).name;
        assert_eq!(named("Ada\u{7}\nL"), "AdaL");
        assert_eq!(named(&"é".repeat(300)).chars().count(), 128);
        assert_eq!(named("\n"), "a person's key");
    }
}
