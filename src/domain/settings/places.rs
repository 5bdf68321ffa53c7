//! The lines of settings in their file, for error messages.

use std::collections::{BTreeMap, BTreeSet};

use crate::domain::strict_toml::FileError;

/// The file's name in errors where none is set.
const SETTINGS_FILE: &str = "weir.toml";

/// A file and the lines of its keys, by paths such as `provider.NAME.KEY` and `model.1.KEY`. All values are equal, because
/// settings do not depend on their lines.
#[derive(Clone, Debug, Default)]
pub(crate) struct SettingLines {
    /// The file's name in errors; empty for `weir.toml`.
    pub file: String,
    /// The line of each key, counted from 1.
    pub lines: BTreeMap<String, usize>,
    /// Keys that could not be read, which is already reported.
    pub unread: BTreeSet<String>,
}

impl PartialEq for SettingLines {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for SettingLines {}

impl SettingLines {
    /// The file's name in errors.
    pub(crate) fn file(&self) -> &str {
        match self.file.as_str() {
            "" => SETTINGS_FILE,
            file => file,
        }
    }

    /// A fault of a key, with the line of the key or else of its table.
    pub(crate) fn fault(&self, key: &str, message: impl Into<String>) -> FileError {
        let tables = std::iter::successors(Some(key), |key| key.rsplit_once('.').map(|(table, _)| table));
        FileError {
            line: tables.filter_map(|key| self.lines.get(key)).copied().next(),
            key: Some(key.to_owned()),
            ..FileError::for_file(self.file(), message)
        }
    }
}
