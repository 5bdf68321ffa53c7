//! Changes of a key: the change, the state of the key it is based on, and the resulting key.

#[cfg(test)]
mod tests;

use sha2::{Digest, Sha256};
use thiserror::Error;

use crate::domain::{
    keys::{
        key::{KeyId, KeyRecord, KeyState, KeyView, Rotation},
        secret::KeyDigest,
        terms::{KeyTerms, KeyTermsChange},
    },
    version::Version,
};

/// A change of a key. Operators and the key's owner may make all of them; for [`KeyChange::Update`], their rights differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyChange {
    /// Sets the values that the update has. State, text and creation time stay.
    Update {
        /// The new values.
        update: KeyUpdate,
        /// Who makes the update.
        by: ChangeAuthor,
    },
    /// Gives the key a new text. The present text stays valid for the rotation's overlap, if it has one; an older text ends.
    Rotate(Rotation),
    /// Ends the previous text.
    EndOverlap,
    /// Revokes the key permanently.
    Revoke {
        /// The time, in seconds since the Unix epoch.
        at: i64,
    },
}

/// Who makes an update.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeAuthor {
    /// An operator, who may set any value.
    Operator,
    /// The owner of the key, who may lower limits but not raise them.
    Owner,
}

/// The state of a key that a change is based on. If the key is in another state, the change is not made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangePrecondition {
    /// Any state.
    Anything,
    /// The key at this version.
    Version(Version),
    /// The key while its present text has this digest.
    Text(KeyDigest),
}

/// Why a change is not made.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum KeyChangeError {
    /// The key is not at the version that the change is based on.
    #[error("{id} has changed since version {from} and is at {now}: nothing was changed; weir key show {id}")]
    Stale {
        /// The key.
        id: KeyId,
        /// The version that the change is based on.
        from: Version,
        /// The present version.
        now: Version,
    },
    /// The key no longer has the text that the change is based on.
    #[error("this change was begun with the key's old text: sign in with the new one to change the key")]
    OldText,
    /// An owner tried to raise this limit.
    #[error("the owner of a key can only lower its limits: ask an operator to raise one")]
    Raises(&'static str),
    /// A reset period was set without a quota, which limits nothing and usually means a forgotten quota.
    #[error("only a quota can reset, and this key has no quota: set a quota, or no reset")]
    ResetWithoutQuota,
    /// The new text is the key's previous text.
    #[error("the key had this text before: draw a new one")]
    TextReused,
}

/// The values of a key that can be changed; `None` keeps a value. The account cannot be changed, because the key's spending is
/// counted there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyUpdate {
    /// A new name.
    pub name: Option<String>,
    /// A new expiry; `Some(None)` for no expiry.
    pub expires_at: Option<Option<i64>>,
    /// A new list of models; `Some(None)` for all models.
    pub models: Option<Option<Vec<String>>>,
    /// New limits.
    pub terms: KeyTermsChange,
}

impl KeyUpdate {
    /// The record after the update, at the next revision; unchanged if it already has these values.
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
    /// The key after this change. If that equals the present key, `from` is not checked, so that sending a change again does no
    /// harm.
    ///
    /// # Errors
    /// The change is based on another state of the key, or is not allowed in this one.
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

    /// Checks that the key is in the state that a change is based on.
    ///
    /// # Errors
    /// The key is in another state.
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

    /// The version of the key. It changes with each change of its record or text, but not when the key is used.
    pub fn version(&self) -> Version {
        // A record can always be written as JSON.
        let content = serde_json::to_vec(&(self.digest, &self.record)).unwrap_or_default();
        Version::new(self.record.revision, crc32fast::hash(&content))
    }
}

/// The error for a limit that is higher in `after`; no limit is the highest.
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

/// Maximum length of a key's name, in characters.
const NAME_CHARS_MAX: usize = 128;

/// The template for a person's key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeyTemplate {
    /// The account that pays.
    pub account: String,
    /// The models it may use; `None`: all.
    pub models: Option<Vec<String>>,
    /// Its quota and rate limits.
    pub terms: KeyTerms,
    /// The groups at the OpenID provider whose members get a key; `None`: everybody.
    pub groups: Option<Vec<String>>,
}

/// A person's identity at an OpenID provider.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OidcIdentity<'p> {
    /// The provider's address, as the provider states it.
    pub issuer: &'p str,
    /// The provider's identifier of the person, which it never gives to another person.
    pub subject: &'p str,
    /// The person's name.
    pub name: &'p str,
}

impl OidcIdentity<'_> {
    /// The id of the person's key, always the same on every node.
    pub(crate) fn key_id(&self) -> KeyId {
        let mut hash = Sha256::new();
        // The parts are hashed first, which gives them a fixed length, so that no two identities have the same encoding.
        hash.update(Sha256::digest(self.issuer));
        hash.update(Sha256::digest(self.subject));
        KeyId::from_digest(&hash.finalize().into())
    }
}

impl KeyTemplate {
    /// Makes the record of a person's key with this hint. `now` is in seconds since the Unix epoch.
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
            // Higher than any revision of a deleted key with the same id, which journals and accounts may still know.
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
