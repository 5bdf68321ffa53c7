//! The sign-in documents of the embedded store's file, in memory.

use std::collections::HashMap;

use redb::ReadableTable;

use super::file::{DOCUMENTS, StoreFile};
use crate::domain::keys::secret::KeyDigest;
use crate::store::sign_ins::DocumentChange;

/// The documents by name, each with the second in which it ends.
#[derive(Debug, Default)]
pub(super) struct DocumentTable {
    pub(super) kept: HashMap<KeyDigest, (i64, String)>,
}

impl DocumentTable {
    /// Loads all documents of a file. `Err` describes what cannot be read.
    pub(super) fn load(file: &StoreFile) -> Result<Self, String> {
        let read = || -> Result<Self, redb::Error> {
            let table = file.snapshot()?.open_table(DOCUMENTS)?;
            let mut kept = HashMap::new();
            for entry in table.iter()? {
                let (name, document) = entry?;
                let (until, text) = document.value();
                // An entry with any other name is not weir's.
                if let Ok(name) = name.value().try_into() {
                    kept.insert(KeyDigest::from_bytes(name), (until, text.to_owned()));
                }
            }
            Ok(Self { kept })
        };
        read().map_err(|error| error.to_string())
    }

    /// The text of a document that has not ended at `now`.
    pub(super) fn text(&self, name: &KeyDigest, now: i64) -> Option<&str> {
        let (until, text) = self.kept.get(name)?;
        (now < *until).then_some(text.as_str())
    }

    /// Whether everything that a change depends on is as it expects.
    pub(super) fn is_as_expected(&self, change: &DocumentChange, now: i64) -> bool {
        let mut expected = change.expected.iter();
        expected.all(|(name, text)| self.text(name, now) == text.as_deref())
    }

    /// The number of documents that a change adds.
    pub(super) fn count_added(&self, change: &DocumentChange) -> usize {
        let put = change.put.iter();
        put.filter(|(name, ..)| !self.kept.contains_key(name)).count()
    }

    /// The documents that a change removes: those it names, and those that have ended.
    pub(super) fn obsolete(&self, change: &DocumentChange, now: i64) -> Vec<KeyDigest> {
        let over = self.kept.iter().filter(|(_, (until, _))| *until <= now);
        let named = change.removed.iter().chain(&change.ended).copied();
        over.map(|(name, _)| *name).chain(named).collect()
    }
}
