//! Kinds of settings: how a value is read, what holds without one, and what the shipped file shows of it.

use std::collections::BTreeSet;

use toml::{Value, de::DeValue};

use super::section::{Refused, Section, ValueReader, join};

/// How a setting is read, and what it is without a word in the file.
pub(crate) struct Kind<T> {
    read: Read<T>,
    absent: Absent<T>,
    differs: Differs<T>,
    shown: Shown,
    /// It is read only at the start.
    at_start: bool,
}

enum Read<T> {
    /// Of the key's value.
    Value(ReadValue<T>),
    /// Of several keys of the table.
    Flat(ReadKeys<T>),
}

type ReadValue<T> = Box<dyn Fn(&ValueReader<'_>) -> Result<T, Refused>>;

type ReadKeys<T> = Box<dyn Fn(&Section<'_>) -> Option<T>>;

enum Absent<T> {
    /// TOML that holds then, read as if it were there.
    Default(String),
    /// Then it is unset.
    Unset(T),
    /// It has to be there; this stands in for it.
    Required(Option<T>),
}

/// Adds the keys that differ: two values, where they stand, and whether a difference counts.
type Differs<T> = Box<dyn Fn((&T, &T), &str, bool, &mut BTreeSet<String>)>;

/// What the shipped file shows.
#[derive(Default)]
struct Shown {
    bounds: Option<String>,
    example: Option<String>,
    trying_out: Option<String>,
    table: Option<(Header, TellKeys)>,
}

type TellKeys = fn() -> Vec<KeyDescription>;

/// How a table begins in the shipped file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Header {
    /// `[name]`
    Table,
    /// `#[name]`
    Optional,
    /// `#[[name]]`
    Element,
    /// `#[name.example]`
    Named(&'static str),
    /// None: its keys stand in the table around it.
    Flat,
}

/// A key, as the shipped file tells of it.
#[derive(Debug)]
#[cfg_attr(not(test), expect(dead_code, reason = "a test makes the shipped file of it"))]
pub(crate) struct KeyDescription {
    /// Its name.
    pub key: &'static str,
    /// The lines that explain it.
    pub comment: &'static [&'static str],
    /// What stands below.
    pub line: Line,
    /// It takes effect with the next start only.
    pub at_start: bool,
}

/// What stands below a comment.
#[derive(Debug)]
#[cfg_attr(not(test), expect(dead_code, reason = "a test makes the shipped file of it"))]
pub(crate) enum Line {
    /// `key = value`
    Value {
        /// Which numbers there may be.
        bounds: Option<String>,
        /// The default, or an example where there is none.
        value: String,
        /// Whether it is the default.
        is_default: bool,
        /// What the shipped file sets for people who try weir out.
        trying_out: Option<String>,
    },
    /// A table, and what is in it.
    Table(Header, Vec<KeyDescription>),
}

impl<T: PartialEq + 'static> Kind<T> {
    /// Reads a value; the key has to be there.
    pub(crate) fn of(read: impl Fn(&ValueReader<'_>) -> Result<T, Refused> + 'static) -> Self {
        Self::new(Read::Value(Box::new(read)), Absent::Required(None), Shown::default())
    }

    fn new(read: Read<T>, absent: Absent<T>, shown: Shown) -> Self {
        let differs = |(now, before): (&T, &T), at: &str, counts: bool, keys: &mut BTreeSet<String>| {
            if counts && now != before {
                keys.insert(at.to_owned());
            }
        };
        Self {
            read,
            absent,
            differs: Box::new(differs),
            shown,
            at_start: false,
        }
    }

    /// As [`Kind::then`], for what fits any value.
    pub(crate) fn map<U: PartialEq + 'static>(self, f: impl Fn(T) -> U + 'static) -> Kind<U> {
        self.then(move |value| Ok(f(value)))
    }

    /// Makes something else of each value, or says why it cannot be used, without repeating a text.
    pub(crate) fn then<U: PartialEq + 'static>(self, f: impl Fn(T) -> Result<U, String> + 'static) -> Kind<U> {
        let absent = match self.absent {
            Absent::Default(text) => Absent::Default(text),
            Absent::Unset(value) => f(value).map_or(Absent::Required(None), Absent::Unset),
            Absent::Required(value) => Absent::Required(value.and_then(|value| f(value).ok())),
        };
        let read = match self.read {
            Read::Value(read) => Read::Value(Box::new(move |given| Ok(f(read(given)?)?))),
            Read::Flat(read) => Read::Flat(Box::new(move |from| f(read(from)?).ok())),
        };
        Kind {
            at_start: self.at_start,
            ..Kind::new(read, absent, self.shown)
        }
    }

    /// Refuses the values that do not fit.
    pub(crate) fn fits(self, refusal: &'static str, fits: impl Fn(&T) -> bool + 'static) -> Self {
        self.then(move |value| {
            if fits(&value) {
                Ok(value)
            } else {
                Err(refusal.to_owned())
            }
        })
    }

    /// What holds without the key.
    pub(crate) fn or(self, default: impl Into<Value>) -> Self {
        self.or_toml(default.into().to_string())
    }

    pub(super) fn or_toml(mut self, default: String) -> Self {
        self.absent = Absent::Default(default);
        self
    }

    /// The key need not be there. The shipped file has an example.
    pub(crate) fn optional(self, example: impl Into<Value>) -> Kind<Option<T>> {
        let mut kind = self.map(Some).example(example);
        kind.absent = Absent::Unset(None);
        kind
    }

    /// What the shipped file has as an example, where there is no default.
    pub(crate) fn example(mut self, example: impl Into<Value>) -> Self {
        self.shown.example = Some(example.into().to_string());
        self
    }

    /// What goes on in the place of a value that is missing or wrong, which is told.
    pub(crate) fn stand_in(mut self, value: T) -> Self {
        self.absent = Absent::Required(Some(value));
        self
    }

    /// What the shipped file sets for people who try weir out.
    pub(crate) fn trying_out(mut self, value: impl Into<Value>) -> Self {
        self.shown.trying_out = Some(value.into().to_string());
        self
    }

    /// What holds without the key, although it is no value that might stand there.
    pub(crate) fn unset(mut self, value: T) -> Self {
        self.absent = Absent::Unset(value);
        self
    }

    pub(super) fn within(mut self, bounds: String) -> Self {
        self.shown.bounds = Some(bounds);
        self
    }

    /// It is a table, or several.
    pub(super) fn told_as(mut self, header: Header, keys: TellKeys) -> Self {
        self.shown.table = Some((header, keys));
        self
    }

    pub(super) fn differing(mut self, differs: impl Fn((&T, &T), &str, bool, &mut BTreeSet<String>) + 'static) -> Self {
        self.differs = Box::new(differs);
        self
    }

    pub(super) fn flat(read: impl Fn(&Section<'_>) -> Option<T> + 'static) -> Self {
        Self::new(Read::Flat(Box::new(read)), Absent::Required(None), Shown::default())
    }

    /// It is read only at the start, with all that is in it.
    pub(crate) fn restart(mut self) -> Self {
        self.at_start = true;
        self
    }

    /// Only this of it is read only at the start.
    pub(crate) fn restart_by<U: PartialEq>(self, what: impl Fn(&T) -> U + 'static) -> Self {
        self.differing(move |(now, before), at, _, keys| {
            if what(now) != what(before) {
                keys.insert(at.to_owned());
            }
        })
    }

    /// Reads a value that is there.
    pub(super) fn read(&self, given: &ValueReader<'_>) -> Result<T, Refused> {
        match &self.read {
            Read::Value(read) => read(given),
            Read::Flat(read) => read(&given.table()?).ok_or(Refused::Told),
        }
    }

    /// The key's value in a table, or what holds without it; notes what is wrong. `None`: there is nothing to go on with.
    pub(crate) fn read_from(self, from: &Section<'_>, key: &str) -> Option<T> {
        if let Read::Flat(read) = &self.read {
            return read(from);
        }
        match from.given(key) {
            Some(given) => match self.read(&given) {
                Ok(value) => return Some(value),
                Err(refused) => given.refuse(&refused),
            },
            None if matches!(self.absent, Absent::Required(_)) => from.miss(key),
            None => {}
        }
        match self.absent {
            Absent::Default(ref text) => {
                let value = DeValue::parse(text).ok()?;
                self.read(&from.holding(key, value.get_ref())).ok()
            }
            Absent::Unset(value) => Some(value),
            Absent::Required(stand_in) => stand_in,
        }
    }

    /// Adds the keys that differ and are read only at the start; all of them, if `all`.
    pub(crate) fn differ(&self, values: (&T, &T), (table, key): (&str, &str), all: bool, keys: &mut BTreeSet<String>) {
        let at = match self.read {
            Read::Value(_) => join(table, key),
            Read::Flat(_) => table.to_owned(),
        };
        (self.differs)(values, &at, all || self.at_start, keys);
    }

    /// Adds what the shipped file tells of it.
    pub(crate) fn tell(self, key: &'static str, comment: &'static [&'static str], told: &mut Vec<KeyDescription>) {
        let line = match self.shown.table {
            Some((Header::Flat, keys)) => return told.extend(keys()),
            Some((header, keys)) => Line::Table(header, keys()),
            None => {
                let (value, is_default) = match self.absent {
                    Absent::Default(text) => (text, true),
                    Absent::Unset(_) | Absent::Required(_) => (self.shown.example.unwrap_or_default(), false),
                };
                Line::Value {
                    bounds: self.shown.bounds,
                    value,
                    is_default,
                    trying_out: self.shown.trying_out,
                }
            }
        };
        told.push(KeyDescription {
            key,
            comment,
            line,
            at_start: self.at_start,
        });
    }
}
