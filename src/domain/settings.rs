//! Settings, each declared once: its key, type, kind, and the comment that explains it to operators. A [`SettingKind`] determines how a
//! value is read, its bounds, and its default.
//!
//! [`settings!`] turns a declaration into a struct, its reader, and its part of the shipped file. From this one:
//! ```text
//! settings! {
//!     /// `[retry]`: …
//!     pub(crate) struct RetryConfig {
//!         /// Whether a request also goes on …
//!         after_timeout: bool = flag(false),
//!     }
//! }
//! ```
//! it makes `struct RetryConfig { pub after_timeout: bool }` and an implementation of [`Settings`], whose reader is
//! ```text
//! let (after_timeout,) = (flag(false).read_from(from, "after_timeout"),);
//! Some(Self { after_timeout: after_timeout? })
//! ```
//! so every key is read before the first fault ends the reading. `grace("grace_usd"): NanoUsd = …` declares a field whose name
//! differs from its key. `} beside { sinks: Vec<JournalSink>, }` adds fields that are not keys and start with their default;
//! `} checked by NAME` calls `NAME(read, from)` to check keys against each other.

mod kind;
#[cfg(test)]
pub(crate) mod page;
mod section;
#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, fmt::Display, ops::RangeInclusive, time::Duration};

use toml::de::DeValue;

use crate::domain::settings::section::TableHeader;

pub(crate) use self::{
    kind::SettingKind,
    section::{KeyDescription, Section, SettingFault},
};
pub(crate) use crate::domain::settings::section::{SettingLines, Settings, parse_settings};

/// The name of a key in the file: that of its field, unless it is given.
macro_rules! key {
    ($field:ident) => {
        stringify!($field)
    };
    ($field:ident $key:literal) => {
        $key
    };
}

/// Declares a table of settings; see [the module](self).
macro_rules! settings {
    (
        $(#[$attribute:meta])*
        $visibility:vis struct $name:ident {
            $(
                $(#[doc = $comment:literal])*
                $(#[serde($($serde:tt)*)])?
                $field:ident $(($key:literal))?: $type:ty = $kind:expr,
            )*
        }
        $(beside { $($(#[doc = $about:literal])* $extra:ident: $extra_type:ty,)* })?
        $(checked by $check:ident)?
    ) => {
        $(#[$attribute])*
        #[allow(rustdoc::broken_intra_doc_links, reason = "comments are those of the file, in which [section] names a section")]
        $visibility struct $name {
            $($(#[doc = $comment])* $(#[serde($($serde)*)])? pub $field: $type,)*
            $($($(#[doc = $about])* pub $extra: $extra_type,)*)?
        }

        impl $crate::domain::settings::Settings for $name {
            fn describe_keys() -> Vec<$crate::domain::settings::KeyDescription> {
                let mut told = Vec::new();
                $({
                    let kind: $crate::domain::settings::SettingKind<$type> = $kind;
                    kind.describe($crate::domain::settings::key!($field $($key)?), &[$($comment),*], &mut told);
                })*
                told
            }

            fn read_keys(from: &$crate::domain::settings::Section<'_>) -> Option<Self> {
                // In one tuple, so that no field shadows a function of the same name.
                let ($($field,)*) = ($({
                    let kind: $crate::domain::settings::SettingKind<$type> = $kind;
                    kind.read_from(from, $crate::domain::settings::key!($field $($key)?))
                },)*);
                let read = Self {
                    $($field: $field?,)*
                    $($($extra: Default::default(),)*)?
                };
                $(let read = $check(read, from);)?
                Some(read)
            }

            fn differing(&self, before: &Self, at: &str, all: bool, keys: &mut std::collections::BTreeSet<String>) {
                $({
                    let kind: $crate::domain::settings::SettingKind<$type> = $kind;
                    let at = (at, $crate::domain::settings::key!($field $($key)?));
                    kind.differ((&self.$field, &before.$field), at, all, keys);
                })*
            }
        }
    };
}

pub(crate) use key;
pub(crate) use settings;

const DAY_SECONDS: u64 = 86_400;

/// A boolean.
pub(crate) fn flag(default: bool) -> SettingKind<bool> {
    let read = SettingKind::of(|given| match given.value {
        DeValue::Boolean(truth) => Ok(*truth),
        _ => Err(given.type_fault("true or false")),
    });
    read.or(default)
}

/// A whole number within bounds.
pub(crate) fn within<T>(limits: RangeInclusive<T>) -> SettingKind<T>
where
    T: TryFrom<i128> + PartialOrd + Display + 'static,
{
    let (least, most) = (limits.start().to_string(), limits.end().to_string());
    let bounds = format!("{least} to {most}");
    let read = SettingKind::of(move |given| {
        let DeValue::Integer(integer) = given.value else {
            return Err(given.type_fault("a whole number"));
        };
        let number = i128::from_str_radix(integer.as_str(), integer.radix());
        let fitting = number.as_ref().ok().and_then(|number| T::try_from(*number).ok());
        fitting.filter(|number| limits.contains(number)).ok_or_else(|| {
            let number = number.map_or("this number".to_owned(), |number| number.to_string());
            SettingFault::Because(format!("{number} is out of range, give {least} to {most}"))
        })
    });
    read.within(bounds)
}

/// A whole number within bounds, with a default.
pub(crate) fn number<T>(default: T, limits: RangeInclusive<T>) -> SettingKind<T>
where
    T: TryFrom<i128> + PartialOrd + Display + Copy + 'static,
{
    within(limits).or_toml(default.to_string())
}

/// A time in milliseconds.
pub(crate) fn millis(default: u64, limits: RangeInclusive<u64>) -> SettingKind<Duration> {
    number(default, limits).map(Duration::from_millis)
}

/// A time in seconds.
pub(crate) fn seconds(default: u64, limits: RangeInclusive<u64>) -> SettingKind<Duration> {
    number(default, limits).map(Duration::from_secs)
}

/// A time in days.
pub(crate) fn days(default: u64, limits: RangeInclusive<u64>) -> SettingKind<Duration> {
    number(default, limits).map(|days| Duration::from_secs(days.saturating_mul(DAY_SECONDS)))
}

/// Any text.
pub(crate) fn text() -> SettingKind<String> {
    SettingKind::of(|given| given.text().map(str::to_owned))
}

/// One of several names. `noun` says what they name, for errors.
pub(crate) fn one_of<T, const N: usize>(noun: &'static str, choices: [(&'static str, T); N]) -> SettingKind<T>
where
    T: Clone + PartialEq + 'static,
{
    text().then(move |text| {
        let chosen = choices.iter().find(|(name, _)| *name == text);
        chosen.map(|(_, value)| value.clone()).ok_or_else(|| {
            let names = choices.each_ref().map(|(name, _)| *name);
            let (last, others) = names.split_last().unwrap_or((&"", &[]));
            format!("no such {noun}, give {} or {last}", others.join(", "))
        })
    })
}

/// A list. Tables at fault in it are reported and left out; any other element at fault makes the whole list unusable.
pub(crate) fn list_of<T: PartialEq + 'static>(element: SettingKind<T>) -> SettingKind<Vec<T>> {
    SettingKind::of(move |given| {
        let DeValue::Array(list) = given.value else {
            return Err(given.type_fault("an array"));
        };
        let mut all = Vec::new();
        for (number, value) in (1_usize..).zip(list.iter()) {
            match element.read(&given.child(&number.to_string(), value.get_ref())) {
                Ok(one) => all.push(one),
                Err(SettingFault::Reported) => given.mark_unread(),
                Err(because) => return Err(because),
            }
        }
        Ok(all)
    })
}

/// Values by names that the file chooses. Values at fault are reported and left out.
pub(crate) fn map_of<T: PartialEq + 'static>(value: SettingKind<T>) -> SettingKind<BTreeMap<String, T>> {
    SettingKind::of(move |given| {
        let DeValue::Table(table) = given.value else {
            return Err(given.type_fault("a table"));
        };
        let mut all = BTreeMap::new();
        for (name, one) in table {
            let inside = given.child(name.get_ref(), one.get_ref());
            match value.read(&inside) {
                Ok(one) => {
                    all.insert(name.get_ref().to_string(), one);
                }
                Err(refused) => {
                    inside.report(&refused);
                    given.mark_unread();
                }
            }
        }
        Ok(all)
    })
}

/// A table that always exists: keys that the file does not give have defaults.
pub(crate) fn table<T: Settings>() -> SettingKind<T> {
    of_table::<T>()
        .or_toml("{}".to_owned())
        .differing(|(now, before), at, all, keys| now.differing(before, at, all, keys))
        .shown_as(TableHeader::Table, T::describe_keys)
}

/// A table that may be absent.
pub(crate) fn optional_table<T: Settings>() -> SettingKind<Option<T>> {
    let read = of_table::<T>().map(Some).unset(None);
    in_place(read).shown_as(TableHeader::Optional, T::describe_keys)
}

/// A table that has effect only if its key `switch` is given.
pub(crate) fn table_with<T: Settings>(switch: &'static str) -> SettingKind<Option<T>> {
    let read = SettingKind::of(move |given| {
        let mut section = given.table()?;
        section.is_off = !section.contains_key(switch);
        let read = T::read(&section);
        match section.is_off {
            true => Ok(None),
            false => read.map(Some).ok_or(SettingFault::Reported),
        }
    });
    in_place(read.unset(None)).shown_as(TableHeader::Table, T::describe_keys)
}

/// A list of tables, `[[name]]`.
pub(crate) fn tables<T: Settings>() -> SettingKind<Vec<T>> {
    list_of(of_table::<T>())
        .unset(Vec::new())
        .shown_as(TableHeader::Element, T::describe_keys)
}

/// Tables by names that the file chooses; `example` is shown in the shipped file.
pub(crate) fn named<T: Settings>(example: &'static str) -> SettingKind<BTreeMap<String, T>> {
    map_of(of_table::<T>())
        .unset(BTreeMap::new())
        .shown_as(TableHeader::Named(example), T::describe_keys)
}

/// A group of keys in the surrounding table.
pub(crate) fn flat<T: Settings>() -> SettingKind<T> {
    SettingKind::flat(T::read_keys)
        .differing(|(now, before), at, all, keys| now.differing(before, at, all, keys))
        .shown_as(TableHeader::Flat, T::describe_keys)
}

fn of_table<T: Settings>() -> SettingKind<T> {
    SettingKind::of(|given| T::read(&given.table()?).ok_or(SettingFault::Reported))
}

/// An optional table that differs by its keys, or by its existence.
fn in_place<T: Settings>(kind: SettingKind<Option<T>>) -> SettingKind<Option<T>> {
    kind.differing(|values, at, all, keys| match values {
        (Some(now), Some(before)) => now.differing(before, at, all, keys),
        (None, None) => {}
        (Some(_), None) | (None, Some(_)) if all => {
            keys.insert(at.to_owned());
        }
        (Some(_), None) | (None, Some(_)) => {}
    })
}
