//! The lines of the catalogue's settings in weir.toml, for error messages.

use std::collections::{BTreeMap, BTreeSet};

use crate::domain::strict_toml::FileError;

/// What settings are called that come from no file.
const SETTINGS_FILE: &str = "weir.toml";

/// The file, and the lines of its keys by their names: `provider.NAME.KEY`, `model.1.KEY`. What settings say does not depend on
/// where they stand: all places are equal.
#[derive(Clone, Debug, Default)]
pub(crate) struct Places {
    /// The file's name in errors; empty for `weir.toml`.
    pub file: String,
    /// The line of each key, counted from 1.
    pub lines: BTreeMap<String, usize>,
    /// Keys that could not be read, which is told already.
    pub unread: BTreeSet<String>,
}

impl PartialEq for Places {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Places {}

impl Places {
    /// What faults name as their file.
    pub(crate) fn file(&self) -> &str {
        match self.file.as_str() {
            "" => SETTINGS_FILE,
            file => file,
        }
    }

    /// A fault of a key, with its line, or else that of the table it belongs to.
    pub(crate) fn fault(&self, key: &str, message: impl Into<String>) -> FileError {
        let tables = std::iter::successors(Some(key), |key| key.rsplit_once('.').map(|(table, _)| table));
        FileError {
            line: tables.filter_map(|key| self.lines.get(key)).copied().next(),
            key: Some(key.to_owned()),
            ..FileError::whole(self.file(), message)
        }
    }
}
