//! Reads a file whose settings are declared: its tables, each value by its key, and every fault with its place.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use toml::de::{DeTable, DeValue};

use crate::domain::strict_toml::{self, FileError, lines, nearest, syntax_faults};

/// The header of a table in the shipped file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TableHeader {
    /// `[name]`
    Table,
    /// `#[name]`
    Optional,
    /// `#[[name]]`
    Element,
    /// `#[name.example]`
    Named(&'static str),
    /// No header: the keys belong to the surrounding table.
    Flat,
}

/// A key as the shipped file shows it.
#[derive(Debug)]
#[cfg_attr(not(test), expect(dead_code, reason = "a test makes the shipped file of it"))]
pub(crate) struct KeyDescription {
    pub key: &'static str,
    /// The lines of its comment.
    pub comment: &'static [&'static str],
    /// The value or table below the comment.
    pub line: DescribedValue,
    /// Whether it takes effect only at the next start.
    pub at_start: bool,
}

/// The value or table below a comment.
#[derive(Debug)]
#[cfg_attr(not(test), expect(dead_code, reason = "a test makes the shipped file of it"))]
pub(crate) enum DescribedValue {
    /// `key = value`
    Value {
        /// The range of numbers.
        bounds: Option<String>,
        /// The default, or else an example.
        value: String,
        /// Whether the value is the default.
        is_default: bool,
        /// The value that the shipped file sets for trying weir out.
        trying_out: Option<String>,
    },
    /// A table with its keys.
    Table(TableHeader, Vec<KeyDescription>),
}

/// A file being read, with the faults found so far.
pub(super) struct FileReadState<'a> {
    places: SettingLines,
    folder: &'a Path,
    errors: RefCell<Vec<FileError>>,
    /// Keys whose values are unknown: they could not be read, or were given under a similar name.
    unread: RefCell<BTreeSet<String>>,
}

impl<'a> FileReadState<'a> {
    pub(super) fn new(file: &str, lines: BTreeMap<String, usize>, folder: &'a Path) -> Self {
        Self {
            places: SettingLines {
                file: file.to_owned(),
                lines,
                unread: BTreeSet::new(),
            },
            folder,
            errors: RefCell::default(),
            unread: RefCell::default(),
        }
    }

    pub(super) fn into_places(self) -> (SettingLines, Vec<FileError>) {
        let places = SettingLines {
            unread: self.unread.into_inner(),
            ..self.places
        };
        (places, self.errors.into_inner())
    }

    fn report(&self, key: &str, message: impl Into<String>) {
        self.errors.borrow_mut().push(self.places.fault(key, message));
    }

    /// Reports why a value cannot be used.
    fn report_unusable(&self, key: &str, why: &str) {
        self.report(key, format!("key `{key}`: {why}"));
        self.unread.borrow_mut().insert(key.to_owned());
    }

    /// Whether the key's value was read, or the file does not give it.
    fn is_known(&self, key: &str) -> bool {
        let unread = self.unread.borrow();
        let mut tables = std::iter::successors(Some(key), |key| key.rsplit_once('.').map(|(table, _)| table));
        tables.all(|key| !unread.contains(key))
    }
}

/// Why a value cannot be used.
#[derive(Debug)]
pub(crate) enum SettingFault {
    /// The reason, not yet reported. Never repeats a text of the file, which may be a misplaced secret.
    Because(String),
    /// Already reported.
    Reported,
}

impl From<String> for SettingFault {
    fn from(why: String) -> Self {
        Self::Because(why)
    }
}

/// A table of a file.
pub(crate) struct Section<'s> {
    reading: &'s FileReadState<'s>,
    table: &'s DeTable<'s>,
    /// The path of the table: names joined by dots, empty for the whole file.
    at: String,
    /// The table has no effect, so required keys may be missing.
    pub(super) is_off: bool,
}

impl<'s> Section<'s> {
    pub(super) fn root(reading: &'s FileReadState<'s>, table: &'s DeTable<'s>) -> Self {
        Self {
            reading,
            table,
            at: String::new(),
            is_off: false,
        }
    }

    /// The value of a key, if it is given.
    pub(super) fn get(&self, key: &str) -> Option<ValueReader<'_>> {
        let value = self.table.get(key)?.get_ref();
        Some(self.reader_for(key, value))
    }

    /// The reader of a key with this value.
    pub(super) fn reader_for<'v>(&'v self, key: &str, value: &'v DeValue<'v>) -> ValueReader<'v> {
        ValueReader {
            reading: self.reading,
            value,
            at: join(&self.at, key),
            is_off: self.is_off,
        }
    }

    /// Whether the key is given, with a valid value or not.
    pub(crate) fn contains_key(&self, key: &str) -> bool {
        self.table.contains_key(key)
    }

    /// Reports keys other than `keys`, each with the most similar one of them.
    pub(super) fn report_unknown_keys(&self, keys: &[&str]) {
        for name in self.table.keys() {
            let name: &str = name.get_ref();
            if keys.contains(&name) {
                continue;
            }
            let at = join(&self.at, name);
            let message = strict_toml::unknown_name("key", (&self.at, name), keys);
            self.reading.report(&at, message);
            if let Some(meant) = nearest(name, keys.iter().copied()) {
                // Otherwise the key might be reported as missing as well.
                self.reading.unread.borrow_mut().insert(join(&self.at, meant));
            }
        }
    }

    /// Reports that a required key is missing.
    pub(super) fn report_missing(&self, key: &str) {
        let at = join(&self.at, key);
        if !self.is_off && self.reading.is_known(&at) {
            self.reading.report(&at, format!("key `{at}` is missing"));
            self.reading.unread.borrow_mut().insert(at);
        }
    }

    /// Reports that a key's value conflicts with those of `others` (all below this table, as paths with dots), unless one of them
    /// could not be read. The message never repeats a text of the file, which may be a misplaced secret.
    pub(crate) fn report_fault(&self, key: &str, others: &[&str], message: impl std::fmt::Display) {
        let at = join(&self.at, key);
        let known = |key: &&str| self.reading.is_known(&join(&self.at, key));
        if self.reading.is_known(&at) && others.iter().all(known) {
            self.reading.report(&at, format!("key `{at}`: {message}"));
        }
    }
}

/// The value of a key.
pub(crate) struct ValueReader<'s> {
    reading: &'s FileReadState<'s>,
    pub(super) value: &'s DeValue<'s>,
    at: String,
    is_off: bool,
}

impl ValueReader<'_> {
    /// The reader of a value in this one: by its name or, for an element of a list, its number from 1.
    pub(super) fn child<'v>(&'v self, name: &str, value: &'v DeValue<'v>) -> ValueReader<'v> {
        ValueReader {
            reading: self.reading,
            value,
            at: join(&self.at, name),
            is_off: self.is_off,
        }
    }

    /// Reports why the value cannot be used, unless that is already reported.
    pub(super) fn report(&self, refused: &SettingFault) {
        if let SettingFault::Because(why) = refused {
            self.reading.report_unusable(&self.at, why);
        }
    }

    /// Records that a part of the value could not be read.
    pub(super) fn mark_unread(&self) {
        self.reading.unread.borrow_mut().insert(self.at.clone());
    }

    /// The value as a table.
    pub(super) fn table(&self) -> Result<Section<'_>, SettingFault> {
        match self.value {
            DeValue::Table(table) => Ok(Section {
                reading: self.reading,
                table,
                at: self.at.clone(),
                is_off: self.is_off,
            }),
            _ => Err(self.type_fault("a table")),
        }
    }

    /// The value as a text.
    pub(crate) fn text(&self) -> Result<&str, SettingFault> {
        match self.value {
            DeValue::String(text) => Ok(text),
            _ => Err(self.type_fault("a string")),
        }
    }

    /// The folder of the file.
    pub(crate) fn folder(&self) -> &Path {
        self.reading.folder
    }

    /// The value as a path, made absolute with the file's folder.
    pub(crate) fn path(&self) -> Result<PathBuf, SettingFault> {
        let text = self.text()?;
        if text.is_empty() || text.contains('\0') {
            return Err(SettingFault::Because("not a path".to_owned()));
        }
        // Collecting the components drops a `./`, which would show in every message.
        Ok(self.reading.folder.join(text).components().collect())
    }

    /// The fault that the value has another type.
    pub(super) fn type_fault(&self, expected: &str) -> SettingFault {
        let (found, is_bare) = match self.value {
            DeValue::String(_) => ("a string", false),
            DeValue::Integer(_) => ("an integer", true),
            DeValue::Float(_) => ("a floating-point number", true),
            DeValue::Boolean(_) => ("a boolean", true),
            DeValue::Datetime(_) => ("a date or time", true),
            DeValue::Array(_) => ("an array", false),
            DeValue::Table(_) => ("a table", false),
        };
        let hint = if is_bare && expected == "a string" {
            ": quote it"
        } else {
            ""
        };
        SettingFault::Because(format!("expected {expected}, found {found}{hint}"))
    }
}

pub(super) fn join(table: &str, key: &str) -> String {
    match (table, key) {
        ("", _) => key.to_owned(),
        (_, "") => table.to_owned(),
        _ => format!("{table}.{key}"),
    }
}

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
