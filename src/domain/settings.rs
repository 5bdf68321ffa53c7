//! Settings, each declared once: its key, its type, its kind and the comment that explains it to an operator. A [`Kind`] says how
//! the value is read, within which bounds, and what holds where the key is not given.
//!
//! [`settings!`] makes of such a declaration the struct, its reader, and its part of the shipped file. Of this one:
//! ```text
//! settings! {
//!     /// `[retry]`: …
//!     pub(crate) struct RetryConfig {
//!         /// Whether a request also goes on …
//!         after_timeout: bool = flag(false),
//!     }
//! }
//! ```
//! it makes `struct RetryConfig { pub after_timeout: bool }` and [`Settings`] for it, of which the reader is
//! ```text
//! let (after_timeout,) = (flag(false).read_from(from, "after_timeout"),);
//! Some(Self { after_timeout: after_timeout? })
//! ```
//! so that every key is read before any of them is given up. `grace("grace_usd"): NanoUsd = …` is a field with another name than
//! its key. `} beside { sinks: Vec<JournalSink>, }` adds fields that are no keys and begin at their default; `} checked by NAME` calls
//! `NAME(read, from)` for what keys say together.

mod kind;
mod kinds;
#[cfg(test)]
pub(crate) mod page;
mod places;
mod reader;
mod section;

pub(crate) use self::{
    kind::{KeyDescription, Kind},
    kinds::{
        days, flag, flat, list_of, map_of, millis, named, number, one_of, optional_table, seconds, table, table_with,
        tables, text, within,
    },
    places::Places,
    reader::{Settings, understand},
    section::{Refused, Section},
};

/// The name of a key in the file: that of its field, unless another one is given.
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
                    let kind: $crate::domain::settings::Kind<$type> = $kind;
                    kind.tell($crate::domain::settings::key!($field $($key)?), &[$($comment),*], &mut told);
                })*
                told
            }

            fn read_keys(from: &$crate::domain::settings::Section<'_>) -> Option<Self> {
                // All at once, so that a field has no function of its name in its way.
                let ($($field,)*) = ($({
                    let kind: $crate::domain::settings::Kind<$type> = $kind;
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
                    let kind: $crate::domain::settings::Kind<$type> = $kind;
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
