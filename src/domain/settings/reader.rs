//! Reads a file whose settings are declared, and reports every fault in it.

use std::{collections::BTreeSet, path::Path};

use toml::de::DeTable;

use super::{
    kind::KeyDescription,
    places::SettingLines,
    section::{FileReadState, Section},
};
use crate::domain::strict_toml::{FileError, lines, syntax_faults};

/// A table of settings, declared with [`settings!`](super::settings).
pub(crate) trait Settings: Sized + PartialEq + 'static {
    /// Its keys in the order of their declaration.
    fn describe_keys() -> Vec<KeyDescription>;

    /// Reads its keys. `None` if a required key is missing or wrong, which is reported.
    fn read_keys(from: &Section<'_>) -> Option<Self>;

    /// Adds to `keys` those that differ from `before` and take effect only at the next start; with `all`, all that differ.
    fn differing(&self, before: &Self, at: &str, all: bool, keys: &mut BTreeSet<String>);

    /// Reads its keys, and reports all other keys of the table.
    fn read(from: &Section<'_>) -> Option<Self> {
        let keys: Vec<&str> = Self::describe_keys().iter().map(|told| told.key).collect();
        from.report_unknown_keys(&keys);
        Self::read_keys(from)
    }
}

/// The settings of a file, and every fault in it. Values at fault are replaced by their defaults.
#[derive(Debug)]
pub(crate) struct ParsedSettings<T> {
    /// The settings; `None` if the text is not TOML or a required value cannot be replaced.
    pub value: Option<T>,
    /// The faults, in the order of their lines.
    pub errors: Vec<FileError>,
    /// The lines of the keys, for faults that are found later.
    pub places: SettingLines,
}

/// Reads a file's text. `file` is its name in errors; paths in it are relative to `folder`, which is absolute.
pub(crate) fn parse_settings<T: Settings>(file: &str, text: &str, folder: &Path) -> ParsedSettings<T> {
    let (document, syntax) = DeTable::parse_recoverable(text);
    let reading = FileReadState::new(file, lines(text), folder);
    if !syntax.is_empty() {
        return ParsedSettings {
            value: None,
            errors: syntax_faults(file, text, &syntax),
            places: reading.into_places().0,
        };
    }
    let value = T::read(&Section::root(&reading, document.get_ref()));
    let (places, mut errors) = reading.into_places();
    errors.sort_by_key(|error| error.line);
    ParsedSettings { value, errors, places }
}
