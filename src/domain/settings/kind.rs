//! The kinds of settings. A kind determines how a value is read, the default of the setting, and how the setting appears in the
//! shipped weir.toml.

use std::collections::BTreeSet;

use toml::{Value, de::DeValue};

use super::section::{DescribedValue, KeyDescription, Section, SettingFault, TableHeader, ValueReader, join};

/// The kind of a setting with values of type `T`.
pub(crate) struct SettingKind<T> {
    read: SettingReader<T>,
    absent: AbsentValue<T>,
    differs: DifferenceCheck<T>,
    shown: ShippedText,
    /// Whether a change takes effect only at the next start of weir.
    at_start: bool,
}

enum SettingReader<T> {
    /// Reads the value of the setting's own key.
    Value(ReadValue<T>),
    /// Reads several settings of the surrounding table and combines them into one value.
    Flat(ReadKeys<T>),
}

type ReadValue<T> = Box<dyn Fn(&ValueReader<'_>) -> Result<T, SettingFault>>;

type ReadKeys<T> = Box<dyn Fn(&Section<'_>) -> Option<T>>;

enum AbsentValue<T> {
    /// The default in TOML, which is read like a value from the file.
    Default(String),
    /// A default value that needs no TOML.
    Unset(T),
    /// The setting is required. If it is missing, weir reports an error and continues with this value; `None` if reading cannot
    /// continue without the setting.
    Required(Option<T>),
}

/// A comparison of the new and the old value of the setting at a path. The setting can be a table that contains further settings.
/// For each setting whose two values differ, the function adds the setting's path to the set. If the `bool` is false, it does so
/// only for settings that need a restart of weir.
type DifferenceCheck<T> = Box<dyn Fn((&T, &T), &str, bool, &mut BTreeSet<String>)>;

/// How a setting appears in the shipped weir.toml.
#[derive(Default)]
struct ShippedText {
    bounds: Option<String>,
    example: Option<String>,
    trying_out: Option<String>,
    table: Option<(TableHeader, DescribeKeysFn)>,
}

type DescribeKeysFn = fn() -> Vec<KeyDescription>;

impl<T: PartialEq + 'static> SettingKind<T> {
    /// Returns the kind of a required setting. `read` reads its value.
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

    /// Converts each value with `f`, which cannot fail. For a conversion that can fail, use [`SettingKind::then`].
    pub(crate) fn map<U: PartialEq + 'static>(self, f: impl Fn(T) -> U + 'static) -> SettingKind<U> {
        self.then(move |value| Ok(f(value)))
    }

    /// Converts each value with `f`. If `f` fails, its error states why the value cannot be used. The error must not contain the
    /// value.
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

    /// Rejects values for which `fits` returns false. `refusal` is the reason in the error.
    pub(crate) fn fits(self, refusal: &'static str, fits: impl Fn(&T) -> bool + 'static) -> Self {
        self.then(move |value| {
            if fits(&value) {
                Ok(value)
            } else {
                Err(refusal.to_owned())
            }
        })
    }

    /// Sets the setting's default.
    pub(crate) fn or(self, default: impl Into<Value>) -> Self {
        self.or_toml(default.into().to_string())
    }

    pub(super) fn or_toml(mut self, default: String) -> Self {
        self.absent = AbsentValue::Default(default);
        self
    }

    /// Makes the setting optional. The shipped weir.toml contains it with the value `example`.
    pub(crate) fn optional(self, example: impl Into<Value>) -> SettingKind<Option<T>> {
        let mut kind = self.map(Some).example(example);
        kind.absent = AbsentValue::Unset(None);
        kind
    }

    /// Sets an example value, which the shipped weir.toml contains if the setting has no default.
    pub(crate) fn example(mut self, example: impl Into<Value>) -> Self {
        self.shown.example = Some(example.into().to_string());
        self
    }

    /// Sets the value with which reading continues after an absent or invalid value was reported.
    pub(crate) fn stand_in(mut self, value: T) -> Self {
        self.absent = AbsentValue::Required(Some(value));
        self
    }

    /// Sets the value that the shipped weir.toml contains instead of the default, so that users can try out weir.
    pub(crate) fn trying_out(mut self, value: impl Into<Value>) -> Self {
        self.shown.trying_out = Some(value.into().to_string());
        self
    }

    /// Sets a default that cannot be written in TOML.
    pub(crate) fn unset(mut self, value: T) -> Self {
        self.absent = AbsentValue::Unset(value);
        self
    }

    pub(super) fn within(mut self, bounds: String) -> Self {
        self.shown.bounds = Some(bounds);
        self
    }

    /// Sets the table header under which the shipped weir.toml contains the setting's keys. `keys` returns their descriptions.
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

    /// Marks the setting and all settings in it as taking effect only at the next start of weir.
    pub(crate) fn restart(mut self) -> Self {
        self.at_start = true;
        self
    }

    /// Marks the setting as needing a restart of weir if the part of its value that `what` returns has changed.
    pub(crate) fn restart_by<U: PartialEq>(self, what: impl Fn(&T) -> U + 'static) -> Self {
        self.differing(move |(now, before), at, _, keys| {
            if what(now) != what(before) {
                keys.insert(at.to_owned());
            }
        })
    }

    /// Reads the value that the file gives for the setting.
    pub(super) fn read(&self, given: &ValueReader<'_>) -> Result<T, SettingFault> {
        match &self.read {
            SettingReader::Value(read) => read(given),
            SettingReader::Flat(read) => read(&given.table()?).ok_or(SettingFault::Reported),
        }
    }

    /// Returns the value of the setting `key` in a table, or its default. Reports errors. `None` if there is no value with which
    /// to continue.
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

    /// Adds to `keys` the path of each setting whose two values differ. Settings that take effect without a restart of weir are
    /// included only if `all` is true.
    pub(crate) fn differ(&self, values: (&T, &T), (table, key): (&str, &str), all: bool, keys: &mut BTreeSet<String>) {
        let at = match self.read {
            SettingReader::Value(_) => join(table, key),
            SettingReader::Flat(_) => table.to_owned(),
        };
        (self.differs)(values, &at, all || self.at_start, keys);
    }

    /// Adds to `told` the description of the setting, or of each setting in its group, for the shipped weir.toml.
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
