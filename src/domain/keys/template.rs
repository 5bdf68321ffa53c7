//! The key of a person: made of a template when they come first, and found again by who they are.

use sha2::{Digest, Sha256};

use crate::domain::keys::{
    key::{KeyId, KeyRecord, KeyState},
    terms::KeyTerms,
};

/// The longest name of a key, in characters.
const NAME_CHARS_MAX: usize = 128;

/// What a person's key is given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeyTemplate {
    /// The account that pays.
    pub account: String,
    /// The models it may ask for; `None`: all.
    pub models: Option<Vec<String>>,
    /// What it may spend, and how fast.
    pub terms: KeyTerms,
    /// The groups at the provider whose members get one; `None`: everybody.
    pub groups: Option<Vec<String>>,
}

/// A person whom a provider vouches for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PersonOf<'p> {
    /// The provider's address, as it says it.
    pub issuer: &'p str,
    /// Whom it means: never another one.
    pub subject: &'p str,
    /// What people call them.
    pub name: &'p str,
}

impl PersonOf<'_> {
    /// The id of their key: the same at every node and each time.
    pub(crate) fn key(&self) -> KeyId {
        let mut hash = Sha256::new();
        // What is hashed twice has one length: no two persons are written in the same way.
        hash.update(Sha256::digest(self.issuer));
        hash.update(Sha256::digest(self.subject));
        KeyId::of_digest(&hash.finalize().into())
    }
}

impl KeyTemplate {
    /// The record of a person's key with this hint, made now, in seconds since the Unix epoch.
    pub(crate) fn record(&self, person: &PersonOf<'_>, hint: String, now: i64) -> KeyRecord {
        let visible = person.name.chars().filter(|char| !char.is_control());
        let name: String = visible.take(NAME_CHARS_MAX).collect();
        KeyRecord {
            id: person.key(),
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
            // Above all revisions of a key of the same id that was deleted before, which journals and accounts may still know.
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

    fn person<'p>(issuer: &'p str, subject: &'p str, name: &'p str) -> PersonOf<'p> {
        PersonOf { issuer, subject, name }
    }

    #[test]
    fn a_person_is_issuer_and_subject_and_nothing_else() {
        let ada = person("https://a", "1", "Ada").key();
        assert_eq!(person("https://a", "1", "Countess").key(), ada);
        for other in [
            ("https://a", "2"),
            ("https://b", "1"),
            ("https://a1", ""),
            ("", "https://a1"),
        ] {
            assert_ne!(person(other.0, other.1, "Ada").key(), ada, "{other:?}");
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
