//! Finds all errors of a TOML file, not only the first one. A value that cannot be read is removed, or replaced by a substitute
//! if it is required. The file is then read again.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
};

use serde::de::DeserializeOwned;
use toml::{
    Spanned,
    de::{DeArray, DeTable, DeValue},
};

use super::{
    FileError, explain, nearest,
    reader::{ReadError, ReadFault, TomlValueReader},
    syntax_faults,
};

/// The maximum number of errors that are returned for one file.
const FAULTS_MAX: usize = 100;
/// The TOML values that can replace a required value, one for each type. The first substitute that has the required type is used.
const STAND_INS: [&str; 5] = ["\"\"", "0", "false", "[]", "{}"];

/// The result of parsing a file: a value, and the errors of the file. The value lacks the parts of the file that could not be
/// read.
#[derive(Debug)]
pub(crate) struct ParsedFile<T> {
    /// The value without the faulty parts of the file; `None` if the remaining parts cannot be read either.
    pub value: Option<T>,
    /// All errors of the file, sorted by line.
    pub errors: Vec<FileError>,
    /// The spans of values that are not checked: substitutes, and values that may depend on a removed key.
    pub(super) unsure: Vec<Range<usize>>,
}

/// Parses `text` into `T` and continues after an error, so that all errors are found. If the file has syntax errors, only these
/// are returned. Otherwise, the errors are unknown keys (with the nearest valid name), missing keys and values of the wrong type.
/// `T` and every table in it should have `#[serde(deny_unknown_fields)]`. `file` is the file's name in the errors.
pub(crate) fn parse_all<T: DeserializeOwned>(file: &str, text: &str) -> ParsedFile<T> {
    let (document, syntax) = DeTable::parse_recoverable(text);
    if !syntax.is_empty() {
        return ParsedFile {
            value: None,
            errors: syntax_faults(file, text, &syntax),
            unsure: Vec::new(),
        };
    }
    let mut repair = Repair {
        document,
        struck: BTreeSet::new(),
        unsure: Vec::new(),
        end: text.len(),
    };
    let mut errors = Vec::new();
    let value = loop {
        match T::deserialize(TomlValueReader::from_document(repair.document.clone())) {
            Ok(value) => break Some(value),
            Err(error) => {
                let mended = repair.repair::<T>(&error);
                if mended.is_news {
                    errors.push(explain(file, text, &error));
                }
                if !mended.goes_on || errors.len() >= FAULTS_MAX {
                    break None;
                }
            }
        }
    };
    errors.sort_by_key(|error| error.line);
    ParsedFile {
        value,
        errors,
        unsure: repair.unsure,
    }
}

/// The path of a value in a TOML document: names of keys, and indices of array elements counted from 1.
type TomlPath = Vec<String>;

struct Repair<'t> {
    document: Spanned<DeTable<'t>>,
    struck: BTreeSet<TomlPath>,
    unsure: Vec<Range<usize>>,
    /// The length of the file in bytes. The span of every substitute begins at this offset, so it differs from all spans in the
    /// file.
    end: usize,
}

struct RepairOutcome {
    /// Whether the error exists in the original file, and was not caused by the removal of another value.
    is_news: bool,
    goes_on: bool,
}

impl<'t> Repair<'t> {
    fn repair<T: DeserializeOwned>(&mut self, error: &ReadError) -> RepairOutcome {
        let missing = match error.reason {
            ReadFault::MissingKey(name) => Some(name),
            _ => None,
        };
        let Some(span) = error.span.clone() else {
            return RepairOutcome {
                is_news: true,
                goes_on: false,
            };
        };
        let root = self.document.span() == span && missing.is_some();
        let path = if root {
            Some(TomlPath::new())
        } else {
            find_path(self.document.get_ref(), &span)
        };
        match (path, missing) {
            (Some(table), Some(name)) => {
                let mut key = table.clone();
                key.push(name.to_owned());
                let is_news = self.struck.insert(key);
                let goes_on = self.add_stand_in::<T>(&table, name) || self.remove(table.clone());
                RepairOutcome { is_news, goes_on }
            }
            (Some(path), None) => {
                let is_news = !self.unsure.contains(&span);
                if let (Some(meant), Some((_, table))) = (meant_key(&error.reason), path.split_last()) {
                    // The unknown key is probably a misspelling of this valid key, so this valid key is not reported as missing.
                    self.struck.insert(table.iter().cloned().chain([meant]).collect());
                }
                let goes_on = self.remove(path);
                RepairOutcome { is_news, goes_on }
            }
            (None, _) => RepairOutcome {
                is_news: true,
                goes_on: false,
            },
        }
    }

    /// Removes the key or array element at `path`. Returns `false` if it does not exist.
    fn remove(&mut self, path: TomlPath) -> bool {
        let Some((last, tables)) = path.split_last() else {
            return false;
        };
        let gone = match container_at(&mut self.document, tables) {
            Some(TomlContainer::Table(table)) => {
                let others = table.iter().filter(|_| is_judged_together(tables));
                let spans = others
                    .flat_map(|(key, value)| [key.span(), value.span()])
                    .collect::<Vec<_>>();
                self.unsure.extend(spans);
                table.remove(last.as_str()).is_some()
            }
            Some(TomlContainer::Array(array)) => element_index(last).is_some_and(|index| {
                let there = index < array.len();
                let others = std::mem::replace(array, DeArray::new()).into_iter().enumerate();
                *array = others
                    .filter(|(at, _)| *at != index)
                    .map(|(_, element)| element)
                    .collect();
                there
            }),
            None => false,
        };
        self.struck.insert(path);
        gone
    }

    /// Adds a substitute for the required key `name` of `table`. Returns `false` if no substitute has the required type.
    fn add_stand_in<T: DeserializeOwned>(&mut self, table: &[String], name: &str) -> bool {
        // The span is after the end of the file and different for each substitute.
        let span = self.end..self.end + 1 + self.unsure.len();
        for text in STAND_INS {
            let Ok(value) = DeValue::parse(text) else { continue };
            let mut tried = self.document.clone();
            let Some(TomlContainer::Table(place)) = container_at(&mut tried, table) else {
                return false;
            };
            let key = Spanned::new(span.clone(), name.to_owned().into());
            place.insert(key, Spanned::new(span.clone(), value.into_inner()));
            let fits = match T::deserialize(TomlValueReader::from_document(tried.clone())) {
                Ok(_) => true,
                Err(error) => error.span.as_ref() != Some(&span),
            };
            if fits {
                self.document = tried;
                self.unsure.push(span);
                return true;
            }
        }
        false
    }
}

/// Returns the valid key that is probably meant by an unknown key; `None` if no valid key is similar enough.
fn meant_key(reason: &ReadFault) -> Option<String> {
    let ReadFault::UnknownKey { name, valid } = reason else {
        return None;
    };
    nearest(name, valid.iter().copied()).map(str::to_owned)
}

/// Whether keys of this table may depend on each other, as in array elements and in `[auth]`. `table` is the table's path.
fn is_judged_together(table: &[String]) -> bool {
    table.iter().any(|name| name.parse::<usize>().is_ok()) || table.first().is_some_and(|name| name == "auth")
}

/// Returns the index of an array element. `number` is its number in a path, which is counted from 1.
fn element_index(number: &str) -> Option<usize> {
    number.parse::<usize>().ok()?.checked_sub(1)
}

enum TomlContainer<'p, 't> {
    Table(&'p mut DeTable<'t>),
    Array(&'p mut DeArray<'t>),
}

fn container_at<'p, 't>(document: &'p mut Spanned<DeTable<'t>>, path: &[String]) -> Option<TomlContainer<'p, 't>> {
    let mut place = TomlContainer::Table(document.get_mut());
    for name in path {
        let value = match place {
            TomlContainer::Table(table) => table.get_mut(name.as_str())?,
            TomlContainer::Array(array) => array.get_mut(element_index(name)?)?,
        };
        place = match value.get_mut() {
            DeValue::Table(table) => TomlContainer::Table(table),
            DeValue::Array(array) => TomlContainer::Array(array),
            _ => return None,
        };
    }
    Some(place)
}

/// Returns the path of the innermost key or value with this span.
fn find_path(table: &DeTable<'_>, span: &Range<usize>) -> Option<TomlPath> {
    for (key, value) in table {
        let name = key.get_ref().to_string();
        if key.span() == *span {
            return Some(vec![name]);
        }
        if let Some(path) = find_path_in(value, span) {
            return Some(std::iter::once(name).chain(path).collect());
        }
    }
    None
}

fn find_path_in(value: &Spanned<DeValue<'_>>, span: &Range<usize>) -> Option<TomlPath> {
    let inner = match value.get_ref() {
        DeValue::Table(table) => find_path(table, span),
        DeValue::Array(array) => (1_usize..).zip(array.iter()).find_map(|(number, element)| {
            let path = find_path_in(element, span)?;
            Some(std::iter::once(number.to_string()).chain(path).collect())
        }),
        _ => None,
    };
    inner.or_else(|| (value.span() == *span).then(TomlPath::new))
}

/// Returns the line of every key of a file, counted from 1. The map's keys are paths: names of keys, and indices of array
/// elements counted from 1, joined by dots.
pub(crate) fn lines(text: &str) -> BTreeMap<String, usize> {
    let breaks: Vec<usize> = text.match_indices('\n').map(|(at, _)| at).collect();
    let line = |span: Range<usize>| 1 + breaks.partition_point(|at| *at < span.start);
    let mut lines = BTreeMap::new();
    if let Ok(document) = DeTable::parse(text) {
        record_keys("", document.get_ref(), &line, &mut lines);
    }
    lines
}

fn record_keys(
    before: &str,
    table: &DeTable<'_>,
    line: &impl Fn(Range<usize>) -> usize,
    lines: &mut BTreeMap<String, usize>,
) {
    for (key, value) in table {
        let name = format!("{before}{}", key.get_ref());
        lines.insert(name.clone(), line(key.span()));
        record_inside(&name, value, line, lines);
    }
}

fn record_inside(
    name: &str,
    value: &Spanned<DeValue<'_>>,
    line: &impl Fn(Range<usize>) -> usize,
    lines: &mut BTreeMap<String, usize>,
) {
    match value.get_ref() {
        DeValue::Table(table) => record_keys(&format!("{name}."), table, line, lines),
        DeValue::Array(array) => {
            for (number, element) in (1_usize..).zip(array.iter()) {
                let name = format!("{name}.{number}");
                lines.insert(name.clone(), line(element.span()));
                record_inside(&name, element, line, lines);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct File {
        name: String,
        limit: Option<u64>,
        #[serde(default)]
        list: Vec<Part>,
        #[serde(default)]
        part: BTreeMap<String, Part>,
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Part {
        model: String,
        size: Option<u32>,
    }

    fn fault_texts(text: &str) -> Vec<String> {
        let parsed = parse_all::<File>("a.toml", text);
        parsed.errors.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn every_unknown_key_wrong_type_and_missing_key_is_told_once_and_the_rest_is_read() {
        let text = "name = 5\nlimit = \"x\"\nlmit = 3\n[[list]]\nsize = -1\n[[list]]\nmodel = \"m\"\nsise = 2\nsize = 7\n[part.p]\nmodel = true\nsize = 1\n";
        assert_eq!(
            fault_texts(text),
            [
                "a.toml:1: key `name`: expected a string, found integer: quote it",
                "a.toml:2: key `limit`: expected u64, found string",
                "a.toml:3: key `lmit` is unknown, did you mean `limit`?",
                "a.toml:4: key `model` is missing",
                "a.toml:5: key `size`: expected u32, found integer",
                "a.toml:8: key `sise` is unknown, did you mean `size`?",
                "a.toml:11: key `model`: expected a string, found boolean: quote it",
            ]
        );
        let parsed = parse_all::<File>("a.toml", text);
        let file = parsed.value.unwrap();
        assert_eq!((file.name.as_str(), file.limit), ("", None));
        assert_eq!((file.list.len(), file.list[1].size), (2, Some(7)));
        assert_eq!(file.list[1].model, "m");
        assert_eq!((file.part["p"].size, file.part["p"].model.as_str()), (Some(1), ""));
    }

    #[test]
    fn every_line_that_is_no_toml_is_told() {
        let lines: Vec<String> = fault_texts("name = \nlimit = 1\n= 3\n");
        assert_eq!(lines.len(), 2, "{lines:?}");
        assert!(
            lines[0].starts_with("a.toml:1: ") && lines[1].starts_with("a.toml:3: "),
            "{lines:?}"
        );
    }

    #[test]
    fn a_good_file_has_no_fault() {
        let parsed = parse_all::<File>("a.toml", "name = \"x\"\n");
        assert!(parsed.errors.is_empty() && parsed.value.is_some());
    }

    #[test]
    fn a_file_full_of_faults_ends() {
        let text: String = (0..500).map(|number| format!("unknown{number} = 1\n")).collect();
        assert_eq!(fault_texts(&text).len(), FAULTS_MAX);
    }

    #[test]
    fn keys_have_their_lines() {
        let text = "[part.p]\nmodel = \"m\"\n[[list]]\n[[list]]\nmodel = \"m\"\n";
        let lines = lines(text);
        assert_eq!(lines["part.p.model"], 2);
        assert_eq!((lines["list.1"], lines["list.2"], lines["list.2.model"]), (3, 4, 5));
    }
}
