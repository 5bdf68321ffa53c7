//! A file's tables as they are read: each value by its key, and every fault with its place.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use toml::de::{DeTable, DeValue};

use super::places::Places;
use crate::domain::strict_toml::{self, FileError, nearest};

/// A file that is read, and what has been found wrong with it.
pub(super) struct Reading<'a> {
    places: Places,
    folder: &'a Path,
    errors: RefCell<Vec<FileError>>,
    /// Keys of which nothing is known: what they say could not be read, or stands at a name like theirs.
    unread: RefCell<BTreeSet<String>>,
}

impl<'a> Reading<'a> {
    pub(super) fn new(file: &str, lines: BTreeMap<String, usize>, folder: &'a Path) -> Self {
        Self {
            places: Places {
                file: file.to_owned(),
                lines,
                unread: BTreeSet::new(),
            },
            folder,
            errors: RefCell::default(),
            unread: RefCell::default(),
        }
    }

    pub(super) fn into_places(self) -> (Places, Vec<FileError>) {
        let places = Places {
            unread: self.unread.into_inner(),
            ..self.places
        };
        (places, self.errors.into_inner())
    }

    fn fault(&self, key: &str, message: impl Into<String>) {
        self.errors.borrow_mut().push(self.places.fault(key, message));
    }

    /// Notes why a value cannot be used.
    fn refuse(&self, key: &str, why: &str) {
        self.fault(key, format!("key `{key}`: {why}"));
        self.unread.borrow_mut().insert(key.to_owned());
    }

    /// Whether what the file says of a key was read, or it says nothing of it.
    fn is_known(&self, key: &str) -> bool {
        let unread = self.unread.borrow();
        let mut tables = std::iter::successors(Some(key), |key| key.rsplit_once('.').map(|(table, _)| table));
        tables.all(|key| !unread.contains(key))
    }
}

/// Why a value cannot be used.
#[derive(Debug)]
pub(crate) enum Refused {
    /// This is to be told. It never repeats a text, which may be a misplaced secret.
    Because(String),
    /// That has been told already.
    Told,
}

impl From<String> for Refused {
    fn from(why: String) -> Self {
        Self::Because(why)
    }
}

/// A table of a file.
pub(crate) struct Section<'s> {
    reading: &'s Reading<'s>,
    table: &'s DeTable<'s>,
    /// The names of the tables down to it, joined by dots; empty for the whole file.
    at: String,
    /// It is of no effect: what has to be in it may be missing.
    pub(super) is_off: bool,
}

impl<'s> Section<'s> {
    pub(super) fn root(reading: &'s Reading<'s>, table: &'s DeTable<'s>) -> Self {
        Self {
            reading,
            table,
            at: String::new(),
            is_off: false,
        }
    }

    /// What is given for a key.
    pub(super) fn given(&self, key: &str) -> Option<ValueReader<'_>> {
        let value = self.table.get(key)?.get_ref();
        Some(self.holding(key, value))
    }

    /// A key with this value.
    pub(super) fn holding<'v>(&'v self, key: &str, value: &'v DeValue<'v>) -> ValueReader<'v> {
        ValueReader {
            reading: self.reading,
            value,
            at: join(&self.at, key),
            is_off: self.is_off,
        }
    }

    /// Whether the key is given, rightly or not.
    pub(crate) fn has(&self, key: &str) -> bool {
        self.table.contains_key(key)
    }

    /// Notes the keys that it does not have, each with its neighbour.
    pub(super) fn only(&self, keys: &[&str]) {
        for name in self.table.keys() {
            let name: &str = name.get_ref();
            if keys.contains(&name) {
                continue;
            }
            let at = join(&self.at, name);
            let message = strict_toml::unknown("key", (&self.at, name), keys);
            self.reading.fault(&at, message);
            if let Some(meant) = nearest(name, keys.iter().copied()) {
                // Where it is missed, that is told already.
                self.reading.unread.borrow_mut().insert(join(&self.at, meant));
            }
        }
    }

    /// Notes that a key which has to be there is not.
    pub(super) fn miss(&self, key: &str) {
        let at = join(&self.at, key);
        if !self.is_off && self.reading.is_known(&at) {
            self.reading.fault(&at, format!("key `{at}` is missing"));
            self.reading.unread.borrow_mut().insert(at);
        }
    }

    /// Notes that a key's value is wrong beside those of others (all of them below this table, with dots): nothing is known of
    /// that if one of them could not be read. The message never repeats a text of the file, which may be a misplaced secret.
    pub(crate) fn wrong(&self, key: &str, others: &[&str], message: impl std::fmt::Display) {
        let at = join(&self.at, key);
        let known = |key: &&str| self.reading.is_known(&join(&self.at, key));
        if self.reading.is_known(&at) && others.iter().all(known) {
            self.reading.fault(&at, format!("key `{at}`: {message}"));
        }
    }
}

/// The value of a key.
pub(crate) struct ValueReader<'s> {
    reading: &'s Reading<'s>,
    pub(super) value: &'s DeValue<'s>,
    at: String,
    is_off: bool,
}

impl ValueReader<'_> {
    /// What it holds under a name or, for an element, its number from 1.
    pub(super) fn inside<'v>(&'v self, name: &str, value: &'v DeValue<'v>) -> ValueReader<'v> {
        ValueReader {
            reading: self.reading,
            value,
            at: join(&self.at, name),
            is_off: self.is_off,
        }
    }

    /// Notes why it cannot be used, unless that has been told.
    pub(super) fn refuse(&self, refused: &Refused) {
        if let Refused::Because(why) = refused {
            self.reading.refuse(&self.at, why);
        }
    }

    /// Notes that it is not known as a whole.
    pub(super) fn doubt(&self) {
        self.reading.unread.borrow_mut().insert(self.at.clone());
    }

    /// The table.
    pub(super) fn table(&self) -> Result<Section<'_>, Refused> {
        match self.value {
            DeValue::Table(table) => Ok(Section {
                reading: self.reading,
                table,
                at: self.at.clone(),
                is_off: self.is_off,
            }),
            _ => Err(self.expected("a table")),
        }
    }

    /// The text.
    pub(crate) fn text(&self) -> Result<&str, Refused> {
        match self.value {
            DeValue::String(text) => Ok(text),
            _ => Err(self.expected("a string")),
        }
    }

    /// The folder of the file.
    pub(crate) fn folder(&self) -> &Path {
        self.reading.folder
    }

    /// A path, made absolute with the file's folder.
    pub(crate) fn path(&self) -> Result<PathBuf, Refused> {
        let text = self.text()?;
        if text.is_empty() || text.contains('\0') {
            return Err(Refused::Because("not a path".to_owned()));
        }
        // By its components, which leaves out the `./` that would show in every message.
        Ok(self.reading.folder.join(text).components().collect())
    }

    /// That something of another type stands here.
    pub(super) fn expected(&self, expected: &str) -> Refused {
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
        Refused::Because(format!("expected {expected}, found {found}{hint}"))
    }
}

pub(super) fn join(table: &str, key: &str) -> String {
    match (table, key) {
        ("", _) => key.to_owned(),
        (_, "") => table.to_owned(),
        _ => format!("{table}.{key}"),
    }
}
