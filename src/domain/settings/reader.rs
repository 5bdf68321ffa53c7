//! Reads a file whose settings are declared, and tells every fault of it.

use std::{collections::BTreeSet, path::Path};

use toml::de::DeTable;

use super::{
    kind::KeyDescription,
    places::Places,
    section::{Reading, Section},
};
use crate::domain::strict_toml::{FileError, lines, syntax_faults};

/// A table of settings: declared by [`settings!`](super::settings).
pub(crate) trait Settings: Sized + PartialEq + 'static {
    /// Its keys in the order of their declaration.
    fn describe_keys() -> Vec<KeyDescription>;

    /// Reads its keys. `None`: one that has to be there is missing or wrong, which is told.
    fn read_keys(from: &Section<'_>) -> Option<Self>;

    /// Adds the keys that differ from those of `before` and take effect with the next start only; all of them, if `all`.
    fn differing(&self, before: &Self, at: &str, all: bool, keys: &mut BTreeSet<String>);

    /// Reads its keys from a table that has no others.
    fn read(from: &Section<'_>) -> Option<Self> {
        let keys: Vec<&str> = Self::describe_keys().iter().map(|told| told.key).collect();
        from.only(&keys);
        Self::read_keys(from)
    }
}

/// What a file says, and every fault of it. What is at fault has its default in the value.
#[derive(Debug)]
pub(crate) struct Understood<T> {
    /// `None`: the text is no TOML.
    pub value: Option<T>,
    /// In the order of their lines.
    pub errors: Vec<FileError>,
    /// Where the keys stand, for faults that show later.
    pub places: Places,
}

/// Reads a text. `file` names it in errors; relative paths in it are relative to `folder`, which is absolute.
pub(crate) fn understand<T: Settings>(file: &str, text: &str, folder: &Path) -> Understood<T> {
    let (document, syntax) = DeTable::parse_recoverable(text);
    let reading = Reading::new(file, lines(text), folder);
    if !syntax.is_empty() {
        return Understood {
            value: None,
            errors: syntax_faults(file, text, &syntax),
            places: reading.into_places().0,
        };
    }
    let value = T::read(&Section::root(&reading, document.get_ref()));
    let (places, mut errors) = reading.into_places();
    errors.sort_by_key(|error| error.line);
    Understood { value, errors, places }
}
