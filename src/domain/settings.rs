//! Settings, each declared once: its key, type, kind, and the comment that explains it to operators. A [`Kind`] determines how a
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
mod kinds;
#[cfg(test)]
pub(crate) mod page;
mod places;
mod reader;
mod section;

pub(crate) use self::{
    kind::{KeyDescription, SettingKind},
    kinds::{
        days, flag, flat, list_of, map_of, millis, named, number, one_of, optional_table, seconds, table, table_with,
        tables, text, within,
    },
    places::SettingLines,
    reader::{Settings, parse_settings},
    section::{Section, SettingFault},
};

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

#[cfg(test)]
mod tests;
