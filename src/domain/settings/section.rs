//! Reads a TOML file whose settings are declared with [`settings!`](super::settings): its tables, its values, and all errors with
//! their lines.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use toml::de::{DeTable, DeValue};

use crate::domain::strict_toml::{self, FileError, lines, nearest, syntax_faults};

/// The form of a table in the shipped weir.toml.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TableHeader {
    /// `[name]`: a table that always exists.
    Table,
    /// `#[name]`: a table that is absent by default.
    Optional,
    /// `#[[name]]`: an example element of a list of tables.
    Element,
    /// `#[name.example]`: an example of a table whose name is chosen by the operator. The value is the last part of the example's
    /// name.
    Named(&'static str),
    /// No header: the settings belong to the surrounding table.
    Flat,
}

/// A setting as it appears in the shipped weir.toml.
#[derive(Debug)]
#[cfg_attr(not(test), expect(dead_code, reason = "a test makes the shipped file of it"))]
pub(crate) struct KeyDescription {
    pub key: &'static str,
    /// The lines of the setting's comment.
    pub comment: &'static [&'static str],
    /// The value or table below the comment.
    pub line: DescribedValue,
    /// Whether a change of the setting takes effect only at the next start of weir.
    pub at_start: bool,
}

/// The value or table below a setting's comment in the shipped weir.toml.
#[derive(Debug)]
#[cfg_attr(not(test), expect(dead_code, reason = "a test makes the shipped file of it"))]
pub(crate) enum DescribedValue {
    /// A line `key = value`.
    Value {
        /// The range of a number; `None` for other types.
        bounds: Option<String>,
        /// The default as TOML, or an example if there is no default.
        value: String,
        /// Whether `value` is the default, not an example.
        is_default: bool,
        /// The value that the shipped weir.toml contains instead of the default, so that users can try out weir. `None` for most
        /// settings.
        trying_out: Option<String>,
    },
    /// A table, with its header and its settings.
    Table(TableHeader, Vec<KeyDescription>),
}

/// The state of reading one file: the lines of its settings, and the errors found so far.
pub(super) struct FileReadState<'a> {
    places: SettingLines,
    folder: &'a Path,
    errors: RefCell<Vec<FileError>>,
    /// The paths of settings whose values are unknown, because they could not be read or their keys are misspelled.
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

    /// Reports that the value of the setting `key` cannot be used, with the reason `why`.
    fn report_unusable(&self, key: &str, why: &str) {
        self.report(key, format!("key `{key}`: {why}"));
        self.unread.borrow_mut().insert(key.to_owned());
    }

    /// Whether the setting's value was read, or is not in the file. False if the value or a table that contains it could not be
    /// read.
    fn is_known(&self, key: &str) -> bool {
        let unread = self.unread.borrow();
        let mut tables = std::iter::successors(Some(key), |key| key.rsplit_once('.').map(|(table, _)| table));
        tables.all(|key| !unread.contains(key))
    }
}

/// The reason why a value in the file cannot be used.
#[derive(Debug)]
pub(crate) enum SettingFault {
    /// The reason, which was not reported yet. It never contains a value from the file, because the value could be a misplaced
    /// secret.
    Because(String),
    /// The reason was already reported.
    Reported,
}

impl From<String> for SettingFault {
    fn from(why: String) -> Self {
        Self::Because(why)
    }
}

/// A table of the file that is being read.
pub(crate) struct Section<'s> {
    reading: &'s FileReadState<'s>,
    table: &'s DeTable<'s>,
    /// The table's path: names joined by dots. It is empty for the root of the file.
    at: String,
    /// Whether the table has no effect. If so, missing required settings are not reported.
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

    /// Returns the reader of the setting `key`, or `None` if the file does not contain it.
    pub(super) fn get(&self, key: &str) -> Option<ValueReader<'_>> {
        let value = self.table.get(key)?.get_ref();
        Some(self.reader_for(key, value))
    }

    /// Returns a reader for `value`, the value of the setting `key`.
    pub(super) fn reader_for<'v>(&'v self, key: &str, value: &'v DeValue<'v>) -> ValueReader<'v> {
        ValueReader {
            reading: self.reading,
            value,
            at: join(&self.at, key),
            is_off: self.is_off,
        }
    }

    /// Whether the file contains the setting `key`, even with an invalid value.
    pub(crate) fn contains_key(&self, key: &str) -> bool {
        self.table.contains_key(key)
    }

    /// Reports the keys of the table that are not in `keys`. Each error contains the most similar key in `keys`.
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
                // The misspelled key probably means this setting, so this setting is not reported as missing.
                self.reading.unread.borrow_mut().insert(join(&self.at, meant));
            }
        }
    }

    /// Reports that the required setting `key` is missing, unless the table has no effect or another error of the setting was
    /// reported.
    pub(super) fn report_missing(&self, key: &str) {
        let at = join(&self.at, key);
        if !self.is_off && self.reading.is_known(&at) {
            self.reading.report(&at, format!("key `{at}` is missing"));
            self.reading.unread.borrow_mut().insert(at);
        }
    }

    /// Reports a conflict between the setting `key` and the settings `others`, which are paths below this table. Reports nothing
    /// if one of these settings could not be read. `message` must not contain a value from the file, because the value could be a
    /// misplaced secret.
    pub(crate) fn report_fault(&self, key: &str, others: &[&str], message: impl std::fmt::Display) {
        let at = join(&self.at, key);
        let known = |key: &&str| self.reading.is_known(&join(&self.at, key));
        if self.reading.is_known(&at) && others.iter().all(known) {
            self.reading.report(&at, format!("key `{at}`: {message}"));
        }
    }
}

/// A reader of the value of one setting, or of a part of that value.
pub(crate) struct ValueReader<'s> {
    reading: &'s FileReadState<'s>,
    pub(super) value: &'s DeValue<'s>,
    at: String,
    is_off: bool,
}

impl ValueReader<'_> {
    /// Returns the reader of a part of this value. `name` is the name of a table's member, or the number of a list's element,
    /// counted from 1.
    pub(super) fn child<'v>(&'v self, name: &str, value: &'v DeValue<'v>) -> ValueReader<'v> {
        ValueReader {
            reading: self.reading,
            value,
            at: join(&self.at, name),
            is_off: self.is_off,
        }
    }

    /// Reports the reason why the value cannot be used, unless it was already reported.
    pub(super) fn report(&self, refused: &SettingFault) {
        if let SettingFault::Because(why) = refused {
            self.reading.report_unusable(&self.at, why);
        }
    }

    /// Records that the value could not be read completely.
    pub(super) fn mark_unread(&self) {
        self.reading.unread.borrow_mut().insert(self.at.clone());
    }

    /// Returns the value as a table, or an error if the value has another type.
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

    /// Returns the value as a string, or an error if the value has another type.
    pub(crate) fn text(&self) -> Result<&str, SettingFault> {
        match self.value {
            DeValue::String(text) => Ok(text),
            _ => Err(self.type_fault("a string")),
        }
    }

    /// Returns the folder of the file that is being read.
    pub(crate) fn folder(&self) -> &Path {
        self.reading.folder
    }

    /// Returns the value as a path. A relative path is resolved against the folder of the file that is being read.
    pub(crate) fn path(&self) -> Result<PathBuf, SettingFault> {
        let text = self.text()?;
        if text.is_empty() || text.contains('\0') {
            return Err(SettingFault::Because(
                "expected a path that is not empty and contains no NUL character".to_owned(),
            ));
        }
        // Collecting the components removes `./`, which would otherwise appear in every message with the path.
        Ok(self.reading.folder.join(text).components().collect())
    }

    /// Returns the error that the value does not have the type `expected`.
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

/// A table of settings that is declared with [`settings!`](super::settings).
pub(crate) trait Settings: Sized + PartialEq + 'static {
    /// Returns the descriptions of the table's settings, in the order of their declaration.
    fn describe_keys() -> Vec<KeyDescription>;

    /// Reads the settings of the table `from`. Returns `None` if a required setting is missing or invalid. The error was already
    /// reported in this case.
    fn read_keys(from: &Section<'_>) -> Option<Self>;

    /// Adds to `keys` the path of each setting whose value differs from its value in `before`. Settings that take effect without
    /// a restart of weir are included only if `all` is true. `at` is the table's path.
    fn differing(&self, before: &Self, at: &str, all: bool, keys: &mut BTreeSet<String>);

    /// Reads the settings of the table `from`, and reports the keys that are not settings of the table.
    fn read(from: &Section<'_>) -> Option<Self> {
        let keys: Vec<&str> = Self::describe_keys().iter().map(|told| told.key).collect();
        from.report_unknown_keys(&keys);
        Self::read_keys(from)
    }
}

/// The settings of a file, and all errors found in it. Settings with errors have their default values.
#[derive(Debug)]
pub(crate) struct ParsedSettings<T> {
    /// The settings. `None` if the file is not valid TOML, or if a required setting has an error and no substitute.
    pub value: Option<T>,
    /// All errors, sorted by line.
    pub errors: Vec<FileError>,
    /// The lines of the settings, for errors that are found later.
    pub places: SettingLines,
}

/// Parses `text`, the content of a settings file. `file` is the file's name in errors. Relative paths in the file are resolved
/// against `folder`, which must be absolute.
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

/// The file name in errors if no other name is set.
const SETTINGS_FILE: &str = "weir.toml";

/// The name of a settings file and the lines of its settings, by paths such as `provider.NAME.secret` and `model.1.name`. All
/// values of this type compare as equal, so a comparison of settings ignores the lines.
#[derive(Clone, Debug, Default)]
pub(crate) struct SettingLines {
    /// The file's name in error messages; empty for `weir.toml`.
    pub file: String,
    /// The line of each setting, counted from 1, by the setting's path.
    pub lines: BTreeMap<String, usize>,
    /// The paths of settings that could not be read. Their errors were already reported.
    pub unread: BTreeSet<String>,
}

impl PartialEq for SettingLines {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for SettingLines {}

impl SettingLines {
    /// Returns the file's name in error messages.
    pub(crate) fn file(&self) -> &str {
        match self.file.as_str() {
            "" => SETTINGS_FILE,
            file => file,
        }
    }

    /// Returns an error about the setting at the path `key`. The error has the line of the setting or, if the file does not
    /// contain it, the line of the innermost table around it.
    pub(crate) fn fault(&self, key: &str, message: impl Into<String>) -> FileError {
        let tables = std::iter::successors(Some(key), |key| key.rsplit_once('.').map(|(table, _)| table));
        FileError {
            line: tables.filter_map(|key| self.lines.get(key)).copied().next(),
            key: Some(key.to_owned()),
            ..FileError::for_file(self.file(), message)
        }
    }
}
