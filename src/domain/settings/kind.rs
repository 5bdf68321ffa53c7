//! Kinds of settings: how a value is read, its default, and how the shipped file shows it.

use std::collections::BTreeSet;

use toml::{Value, de::DeValue};

use super::section::{DescribedValue, KeyDescription, Section, SettingFault, TableHeader, ValueReader, join};

/// The kind of a setting: how it is read, its default, and how the shipped file shows it.
pub(crate) struct SettingKind<T> {
    read: SettingReader<T>,
    absent: AbsentValue<T>,
    differs: DifferenceCheck<T>,
    shown: ShippedText,
    /// Whether it is read only at the start.
    at_start: bool,
}

enum SettingReader<T> {
    /// From the key's value.
    Value(ReadValue<T>),
    /// From several keys of the table.
    Flat(ReadKeys<T>),
}

type ReadValue<T> = Box<dyn Fn(&ValueReader<'_>) -> Result<T, SettingFault>>;

type ReadKeys<T> = Box<dyn Fn(&Section<'_>) -> Option<T>>;

enum AbsentValue<T> {
    /// The default as TOML, which is read like a given value.
    Default(String),
    /// A value that is used without reading TOML.
    Unset(T),
    /// A required key; contains a value to continue with after the fault is reported.
    Required(Option<T>),
}

/// Adds the keys that differ, from both values, their path, and whether a difference counts.
type DifferenceCheck<T> = Box<dyn Fn((&T, &T), &str, bool, &mut BTreeSet<String>)>;

/// How the shipped file shows a setting.
#[derive(Default)]
struct ShippedText {
    bounds: Option<String>,
    example: Option<String>,
    trying_out: Option<String>,
    table: Option<(TableHeader, DescribeKeysFn)>,
}

type DescribeKeysFn = fn() -> Vec<KeyDescription>;

impl<T: PartialEq + 'static> SettingKind<T> {
    /// A required key that is read with `read`.
    pub(crate) fn of(read: impl Fn(&ValueReader<'_>) -> Result<T, SettingFault> + 'static) -> Self {
        Self::new(
            SettingReader::Value(Box::new(read)),
            AbsentValue::Required(None),
            ShippedText::default(),
        )
    }

    fn new(read: SettingReader<T>, absent: AbsentValue<T>, shown: ShippedText) -> Self {
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

    /// As [`SettingKind::then`], for a conversion that cannot fail.
    pub(crate) fn map<U: PartialEq + 'static>(self, f: impl Fn(T) -> U + 'static) -> SettingKind<U> {
        self.then(move |value| Ok(f(value)))
    }

    /// Converts each value, or returns why it cannot be used, without repeating its text.
    pub(crate) fn then<U: PartialEq + 'static>(self, f: impl Fn(T) -> Result<U, String> + 'static) -> SettingKind<U> {
        let absent = match self.absent {
            AbsentValue::Default(text) => AbsentValue::Default(text),
            AbsentValue::Unset(value) => f(value).map_or(AbsentValue::Required(None), AbsentValue::Unset),
            AbsentValue::Required(value) => AbsentValue::Required(value.and_then(|value| f(value).ok())),
        };
        let read = match self.read {
            SettingReader::Value(read) => SettingReader::Value(Box::new(move |given| Ok(f(read(given)?)?))),
            SettingReader::Flat(read) => SettingReader::Flat(Box::new(move |from| f(read(from)?).ok())),
        };
        SettingKind {
            at_start: self.at_start,
            ..SettingKind::new(read, absent, self.shown)
        }
    }

    /// Refuses values for which `fits` is false.
    pub(crate) fn fits(self, refusal: &'static str, fits: impl Fn(&T) -> bool + 'static) -> Self {
        self.then(move |value| {
            if fits(&value) {
                Ok(value)
            } else {
                Err(refusal.to_owned())
            }
        })
    }

    /// Sets the default.
    pub(crate) fn or(self, default: impl Into<Value>) -> Self {
        self.or_toml(default.into().to_string())
    }

    pub(super) fn or_toml(mut self, default: String) -> Self {
        self.absent = AbsentValue::Default(default);
        self
    }

    /// Makes the key optional; the shipped file shows `example`.
    pub(crate) fn optional(self, example: impl Into<Value>) -> SettingKind<Option<T>> {
        let mut kind = self.map(Some).example(example);
        kind.absent = AbsentValue::Unset(None);
        kind
    }

    /// Sets the example that the shipped file shows where there is no default.
    pub(crate) fn example(mut self, example: impl Into<Value>) -> Self {
        self.shown.example = Some(example.into().to_string());
        self
    }

    /// Sets the value to continue with after a missing or wrong one is reported.
    pub(crate) fn stand_in(mut self, value: T) -> Self {
        self.absent = AbsentValue::Required(Some(value));
        self
    }

    /// Sets the value that the shipped file has for trying weir out.
    pub(crate) fn trying_out(mut self, value: impl Into<Value>) -> Self {
        self.shown.trying_out = Some(value.into().to_string());
        self
    }

    /// Sets the default to a value that the file cannot express.
    pub(crate) fn unset(mut self, value: T) -> Self {
        self.absent = AbsentValue::Unset(value);
        self
    }

    pub(super) fn within(mut self, bounds: String) -> Self {
        self.shown.bounds = Some(bounds);
        self
    }

    /// Shows the setting as a table, or several.
    pub(super) fn shown_as(mut self, header: TableHeader, keys: DescribeKeysFn) -> Self {
        self.shown.table = Some((header, keys));
        self
    }

    pub(super) fn differing(mut self, differs: impl Fn((&T, &T), &str, bool, &mut BTreeSet<String>) + 'static) -> Self {
        self.differs = Box::new(differs);
        self
    }

    pub(super) fn flat(read: impl Fn(&Section<'_>) -> Option<T> + 'static) -> Self {
        Self::new(
            SettingReader::Flat(Box::new(read)),
            AbsentValue::Required(None),
            ShippedText::default(),
        )
    }

    /// Marks the setting, with everything in it, as read only at the start.
    pub(crate) fn restart(mut self) -> Self {
        self.at_start = true;
        self
    }

    /// Marks only the part that `what` returns as read only at the start.
    pub(crate) fn restart_by<U: PartialEq>(self, what: impl Fn(&T) -> U + 'static) -> Self {
        self.differing(move |(now, before), at, _, keys| {
            if what(now) != what(before) {
                keys.insert(at.to_owned());
            }
        })
    }

    /// Reads a given value.
    pub(super) fn read(&self, given: &ValueReader<'_>) -> Result<T, SettingFault> {
        match &self.read {
            SettingReader::Value(read) => read(given),
            SettingReader::Flat(read) => read(&given.table()?).ok_or(SettingFault::Reported),
        }
    }

    /// The key's value in a table, or its default; reports faults. `None` if there is no value to continue with.
    pub(crate) fn read_from(self, from: &Section<'_>, key: &str) -> Option<T> {
        if let SettingReader::Flat(read) = &self.read {
            return read(from);
        }
        match from.get(key) {
            Some(given) => match self.read(&given) {
                Ok(value) => return Some(value),
                Err(refused) => given.report(&refused),
            },
            None if matches!(self.absent, AbsentValue::Required(_)) => from.report_missing(key),
            None => {}
        }
        match self.absent {
            AbsentValue::Default(ref text) => {
                let value = DeValue::parse(text).ok()?;
                self.read(&from.reader_for(key, value.get_ref())).ok()
            }
            AbsentValue::Unset(value) => Some(value),
            AbsentValue::Required(stand_in) => stand_in,
        }
    }

    /// Adds the keys that differ and are read only at the start; with `all`, all that differ.
    pub(crate) fn differ(&self, values: (&T, &T), (table, key): (&str, &str), all: bool, keys: &mut BTreeSet<String>) {
        let at = match self.read {
            SettingReader::Value(_) => join(table, key),
            SettingReader::Flat(_) => table.to_owned(),
        };
        (self.differs)(values, &at, all || self.at_start, keys);
    }

    /// Adds the descriptions of its keys for the shipped file.
    pub(crate) fn describe(self, key: &'static str, comment: &'static [&'static str], told: &mut Vec<KeyDescription>) {
        let line = match self.shown.table {
            Some((TableHeader::Flat, keys)) => return told.extend(keys()),
            Some((header, keys)) => DescribedValue::Table(header, keys()),
            None => {
                let (value, is_default) = match self.absent {
                    AbsentValue::Default(text) => (text, true),
                    AbsentValue::Unset(_) | AbsentValue::Required(_) => (self.shown.example.unwrap_or_default(), false),
                };
                DescribedValue::Value {
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
