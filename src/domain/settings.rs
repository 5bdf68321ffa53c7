//! Declarations of settings. Each setting is declared once with its key, type, kind, and the comment that explains it to
//! operators. The [`SettingKind`] of a setting determines how its value is read, the setting's bounds, and its default.
//!
//! [`settings!`] turns the declaration of a table into a struct, a reader, and the table's part of the shipped weir.toml. For
//! example, it turns this declaration
//! ```text
//! settings! {
//!     /// `[retry]`: …
//!     pub(crate) struct RetryConfig {
//!         /// Whether a request also goes on …
//!         after_timeout: bool = flag(false),
//!     }
//! }
//! ```
//! into `struct RetryConfig { pub after_timeout: bool }` and an implementation of [`Settings`] whose reader is
//! ```text
//! let (after_timeout,) = (flag(false).read_from(from, "after_timeout"),);
//! Some(Self { after_timeout: after_timeout? })
//! ```
//! The reader reads all settings of a table even if one of them has an error, so it reports all errors. If the name of a
//! field differs from the key, the key is in parentheses: `grace("grace_usd"): NanoUsd = …`. `} beside { sinks: Vec<JournalSink>,
//! }` adds fields that are not settings and have their default values. `} checked by NAME` calls `NAME(read, from)`, which checks
//! the settings of the table against each other.

mod kind;
mod section;
#[cfg(test)]
pub(crate) mod tests;

use std::{collections::BTreeMap, fmt::Display, ops::RangeInclusive, time::Duration};

use toml::de::DeValue;

use crate::domain::settings::section::TableHeader;

pub(crate) use self::{
    kind::SettingKind,
    section::{KeyDescription, Section, SettingFault},
};
pub(crate) use crate::domain::settings::section::{SettingLines, Settings, parse_settings};

/// Expands to the setting's key in the file: the literal if one is given, otherwise the field's name.
macro_rules! key {
    ($field:ident) => {
        stringify!($field)
    };
    ($field:ident $key:literal) => {
        $key
    };
}

/// Declares a table of settings as a struct. The syntax is described at [the module](self).
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
                // One tuple pattern binds all fields, because with a separate `let` for each field, a field could shadow a
                // function of the same name that a later kind calls.
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

/// Returns the kind of a boolean setting with the default `default`.
pub(crate) fn flag(default: bool) -> SettingKind<bool> {
    let read = SettingKind::of(|given| match given.value {
        DeValue::Boolean(truth) => Ok(*truth),
        _ => Err(given.type_fault("true or false")),
    });
    read.or(default)
}

/// Returns the kind of a required setting that is a whole number within `limits`.
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

/// Returns the kind of a setting that is a whole number within `limits`, with the default `default`.
pub(crate) fn number<T>(default: T, limits: RangeInclusive<T>) -> SettingKind<T>
where
    T: TryFrom<i128> + PartialOrd + Display + Copy + 'static,
{
    within(limits).or_toml(default.to_string())
}

/// Returns the kind of a duration in milliseconds. `default` and `limits` are in milliseconds, too.
pub(crate) fn millis(default: u64, limits: RangeInclusive<u64>) -> SettingKind<Duration> {
    number(default, limits).map(Duration::from_millis)
}

/// Returns the kind of a duration in seconds. `default` and `limits` are in seconds, too.
pub(crate) fn seconds(default: u64, limits: RangeInclusive<u64>) -> SettingKind<Duration> {
    number(default, limits).map(Duration::from_secs)
}

/// Returns the kind of a duration in days. `default` and `limits` are in days, too.
pub(crate) fn days(default: u64, limits: RangeInclusive<u64>) -> SettingKind<Duration> {
    number(default, limits).map(|days| Duration::from_secs(days.saturating_mul(DAY_SECONDS)))
}

/// Returns the kind of a required setting that is any string.
pub(crate) fn text() -> SettingKind<String> {
    SettingKind::of(|given| given.text().map(str::to_owned))
}

/// Returns the kind of a required setting whose value is one of the names in `choices`. `noun` is the word for such a name in
/// errors, such as "role".
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

/// Returns the kind of a required list. If an element is a table with errors, they are reported and the element is left out. Any
/// other invalid element makes the complete list invalid.
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

/// Returns the kind of a required table whose keys are chosen by the operator. An invalid entry is reported and left out.
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

/// Returns the kind of a table that always exists. Settings that are not in the file have their defaults.
pub(crate) fn table<T: Settings>() -> SettingKind<T> {
    of_table::<T>()
        .or_toml("{}".to_owned())
        .differing(|(now, before), at, all, keys| now.differing(before, at, all, keys))
        .shown_as(TableHeader::Table, T::describe_keys)
}

/// Returns the kind of a table that is `None` if it is absent from the file.
pub(crate) fn optional_table<T: Settings>() -> SettingKind<Option<T>> {
    let read = of_table::<T>().map(Some).unset(None);
    in_place(read).shown_as(TableHeader::Optional, T::describe_keys)
}

/// Returns the kind of an optional table. The value is `None` unless the table in the file contains the setting `switch`.
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

/// Returns the kind of a list of tables, `[[name]]`. The list is empty if the file has no such table.
pub(crate) fn tables<T: Settings>() -> SettingKind<Vec<T>> {
    list_of(of_table::<T>())
        .unset(Vec::new())
        .shown_as(TableHeader::Element, T::describe_keys)
}

/// Returns the kind of a group of tables, `[group.NAME]`, whose names are chosen by the operator. The shipped weir.toml contains
/// one table, with the name `example`.
pub(crate) fn named<T: Settings>(example: &'static str) -> SettingKind<BTreeMap<String, T>> {
    map_of(of_table::<T>())
        .unset(BTreeMap::new())
        .shown_as(TableHeader::Named(example), T::describe_keys)
}

/// Returns the kind of a group of settings that belong to the surrounding table, without a table of their own.
pub(crate) fn flat<T: Settings>() -> SettingKind<T> {
    SettingKind::flat(T::read_keys)
        .differing(|(now, before), at, all, keys| now.differing(before, at, all, keys))
        .shown_as(TableHeader::Flat, T::describe_keys)
}

fn of_table<T: Settings>() -> SettingKind<T> {
    SettingKind::of(|given| T::read(&given.table()?).ok_or(SettingFault::Reported))
}

/// Returns `kind`, but with a comparison that compares the settings of the optional table one by one. If the table exists in only
/// one of the two compared values, the comparison reports the table as a whole.
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
