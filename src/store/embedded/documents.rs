//! The documents of sign-ins in memory, as the embedded store's file has them.

use std::collections::HashMap;

use redb::ReadableTable;

use super::file::{DOCUMENTS, StoreFile};
use crate::domain::keys::secret::KeyDigest;
use crate::store::sign_ins::DocumentChange;

/// The documents, each with the second in which it ends.
#[derive(Debug, Default)]
pub(super) struct Documents {
    pub(super) kept: HashMap<KeyDigest, (i64, String)>,
}

impl Documents {
    /// All that a file has. `Err` says what cannot be read.
    pub(super) fn load(file: &StoreFile) -> Result<Self, String> {
        let read = || -> Result<Self, redb::Error> {
            let table = file.snapshot()?.open_table(DOCUMENTS)?;
            let mut kept = HashMap::new();
            for entry in table.iter()? {
                let (name, document) = entry?;
                let (until, text) = document.value();
                // What has another name is none of weir's.
                if let Ok(name) = name.value().try_into() {
                    kept.insert(KeyDigest::from_bytes(name), (until, text.to_owned()));
                }
            }
            Ok(Self { kept })
        };
        read().map_err(|error| error.to_string())
    }

    /// The text of a document that has not ended.
    pub(super) fn text(&self, name: &KeyDigest, now: i64) -> Option<&str> {
        let (until, text) = self.kept.get(name)?;
        (now < *until).then_some(text.as_str())
    }

    /// Whether all that a change depends on is as it expects.
    pub(super) fn is_as_expected(&self, change: &DocumentChange, now: i64) -> bool {
        let mut expected = change.expected.iter();
        expected.all(|(name, text)| self.text(name, now) == text.as_deref())
    }

    /// How many documents a change adds to those that are there.
    pub(super) fn added(&self, change: &DocumentChange) -> usize {
        let put = change.put.iter();
        put.filter(|(name, ..)| !self.kept.contains_key(name)).count()
    }

    /// What a change takes away: what it names, and what has ended.
    pub(super) fn going(&self, change: &DocumentChange, now: i64) -> Vec<KeyDigest> {
        let over = self.kept.iter().filter(|(_, (until, _))| *until <= now);
        let named = change.removed.iter().chain(&change.ended).copied();
        over.map(|(name, _)| *name).chain(named).collect()
    }
}
