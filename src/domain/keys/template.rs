//! The key of a person: made from a template at the first sign-in, and found again by the person's identity.

use sha2::{Digest, Sha256};

use crate::domain::keys::{
    key::{KeyId, KeyRecord, KeyState},
    terms::KeyTerms,
};

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
mod tests {
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
