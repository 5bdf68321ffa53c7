//! The kinds that any file has: numbers, texts, choices, lists and tables.

use std::{collections::BTreeMap, fmt::Display, ops::RangeInclusive, time::Duration};

use toml::de::DeValue;

use super::{
    kind::{Header, Kind},
    reader::Settings,
    section::Refused,
};

const DAY_SECONDS: u64 = 86_400;

/// true or false.
pub(crate) fn flag(default: bool) -> Kind<bool> {
    let read = Kind::of(|given| match given.value {
        DeValue::Boolean(truth) => Ok(*truth),
        _ => Err(given.expected("true or false")),
    });
    read.or(default)
}

/// A whole number within bounds.
pub(crate) fn within<T>(limits: RangeInclusive<T>) -> Kind<T>
where
    T: TryFrom<i128> + PartialOrd + Display + 'static,
{
    let (least, most) = (limits.start().to_string(), limits.end().to_string());
    let bounds = format!("{least} to {most}");
    let read = Kind::of(move |given| {
        let DeValue::Integer(integer) = given.value else {
            return Err(given.expected("a whole number"));
        };
        let number = i128::from_str_radix(integer.as_str(), integer.radix());
        let fitting = number.as_ref().ok().and_then(|number| T::try_from(*number).ok());
        fitting.filter(|number| limits.contains(number)).ok_or_else(|| {
            let number = number.map_or("this number".to_owned(), |number| number.to_string());
            Refused::Because(format!("{number} is out of range, give {least} to {most}"))
        })
    });
    read.within(bounds)
}

/// A whole number within bounds, with a default.
pub(crate) fn number<T>(default: T, limits: RangeInclusive<T>) -> Kind<T>
where
    T: TryFrom<i128> + PartialOrd + Display + Copy + 'static,
{
    within(limits).or_toml(default.to_string())
}

/// A time in milliseconds.
pub(crate) fn millis(default: u64, limits: RangeInclusive<u64>) -> Kind<Duration> {
    number(default, limits).map(Duration::from_millis)
}

/// A time in seconds.
pub(crate) fn seconds(default: u64, limits: RangeInclusive<u64>) -> Kind<Duration> {
    number(default, limits).map(Duration::from_secs)
}

/// A time in days.
pub(crate) fn days(default: u64, limits: RangeInclusive<u64>) -> Kind<Duration> {
    number(default, limits).map(|days| Duration::from_secs(days.saturating_mul(DAY_SECONDS)))
}

/// Any text.
pub(crate) fn text() -> Kind<String> {
    Kind::of(|given| given.text().map(str::to_owned))
}

/// One of several names. `noun` is what they name.
pub(crate) fn one_of<T, const N: usize>(noun: &'static str, choices: [(&'static str, T); N]) -> Kind<T>
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

/// A list. A table in it that cannot be used is told and left out; of anything else all have to be right.
pub(crate) fn list_of<T: PartialEq + 'static>(element: Kind<T>) -> Kind<Vec<T>> {
    Kind::of(move |given| {
        let DeValue::Array(list) = given.value else {
            return Err(given.expected("an array"));
        };
        let mut all = Vec::new();
        for (number, value) in (1_usize..).zip(list.iter()) {
            match element.read(&given.inside(&number.to_string(), value.get_ref())) {
                Ok(one) => all.push(one),
                Err(Refused::Told) => given.doubt(),
                Err(because) => return Err(because),
            }
        }
        Ok(all)
    })
}

/// Values by names that the file makes up. One that cannot be used is told, and left out.
pub(crate) fn map_of<T: PartialEq + 'static>(value: Kind<T>) -> Kind<BTreeMap<String, T>> {
    Kind::of(move |given| {
        let DeValue::Table(table) = given.value else {
            return Err(given.expected("a table"));
        };
        let mut all = BTreeMap::new();
        for (name, one) in table {
            let inside = given.inside(name.get_ref(), one.get_ref());
            match value.read(&inside) {
                Ok(one) => {
                    all.insert(name.get_ref().to_string(), one);
                }
                Err(refused) => {
                    inside.refuse(&refused);
                    given.doubt();
                }
            }
        }
        Ok(all)
    })
}

/// A table that is always there: without a word in the file all of it has defaults.
pub(crate) fn table<T: Settings>() -> Kind<T> {
    of_table::<T>()
        .or_toml("{}".to_owned())
        .differing(|(now, before), at, all, keys| now.differing(before, at, all, keys))
        .told_as(Header::Table, T::describe_keys)
}

/// A table that may be left out.
pub(crate) fn optional_table<T: Settings>() -> Kind<Option<T>> {
    let read = of_table::<T>().map(Some).unset(None);
    in_place(read).told_as(Header::Optional, T::describe_keys)
}

/// A table that is of effect only with this one of its keys.
pub(crate) fn table_with<T: Settings>(switch: &'static str) -> Kind<Option<T>> {
    let read = Kind::of(move |given| {
        let mut section = given.table()?;
        section.is_off = !section.has(switch);
        let read = T::read(&section);
        match section.is_off {
            true => Ok(None),
            false => read.map(Some).ok_or(Refused::Told),
        }
    });
    in_place(read.unset(None)).told_as(Header::Table, T::describe_keys)
}

/// Tables in a list, `[[name]]`.
pub(crate) fn tables<T: Settings>() -> Kind<Vec<T>> {
    list_of(of_table::<T>())
        .unset(Vec::new())
        .told_as(Header::Element, T::describe_keys)
}

/// Tables by names that the file makes up, such as this one.
pub(crate) fn named<T: Settings>(example: &'static str) -> Kind<BTreeMap<String, T>> {
    map_of(of_table::<T>())
        .unset(BTreeMap::new())
        .told_as(Header::Named(example), T::describe_keys)
}

/// Keys of the table around them, which belong together.
pub(crate) fn flat<T: Settings>() -> Kind<T> {
    Kind::flat(T::read_keys)
        .differing(|(now, before), at, all, keys| now.differing(before, at, all, keys))
        .told_as(Header::Flat, T::describe_keys)
}

fn of_table<T: Settings>() -> Kind<T> {
    Kind::of(|given| T::read(&given.table()?).ok_or(Refused::Told))
}

/// Tables that differ in their keys, or in being there.
fn in_place<T: Settings>(kind: Kind<Option<T>>) -> Kind<Option<T>> {
    kind.differing(|values, at, all, keys| match values {
        (Some(now), Some(before)) => now.differing(before, at, all, keys),
        (None, None) => {}
        (Some(_), None) | (None, Some(_)) if all => {
            keys.insert(at.to_owned());
        }
        (Some(_), None) | (None, Some(_)) => {}
    })
}
