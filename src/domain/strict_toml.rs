//! Strict TOML: either weir understands a file completely, or the error names file, line, key and the nearest valid
//! name. Errors never quote values, because a value may be a misplaced secret.

mod all;
mod faults;
mod reader;

use std::ops::Range;

pub(crate) use all::{Parsed, lines, parse_all};
pub(in crate::domain) use faults::Faults;
use reader::{ReadError, Reason};

/// Longest name from a file that is repeated in an error, in bytes.
const ECHO_BYTES_MAX: usize = 64;

/// Why a file was refused, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct FileError {
    /// The file's name as it was given to the parser.
    pub file: String,
    /// Line of the fault, counted from 1; `None` when the fault is something absent.
    pub line: Option<usize>,
    /// The key at fault, when one is known.
    pub key: Option<String>,
    /// What is wrong and what to do, lower case, no period; never a value of the file.
    pub message: String,
}

impl std::fmt::Display for FileError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.file)?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
        }
        write!(f, ": {}", self.message)
    }
}

impl FileError {
    /// A fault of the file as a whole.
    pub fn whole(file: &str, message: impl Into<String>) -> Self {
        Self {
            file: file.to_owned(),
            line: None,
            key: None,
            message: message.into(),
        }
    }

    /// A fault at a byte span of the text (as `toml::Spanned` reports it), about `key`.
    pub fn at(file: &str, text: &str, span: Range<usize>, key: &str, message: impl Into<String>) -> Self {
        Self {
            file: file.to_owned(),
            line: Some(line_of(text, span.start)),
            key: Some(key.to_owned()),
            message: message.into(),
        }
    }
}

/// The candidate most like `name`, if one is near enough to be what was meant.
pub(crate) fn nearest<'a>(name: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let near_enough = (name.chars().count() / 3).max(2);
    candidates
        .map(|candidate| (strsim::damerau_levenshtein(name, candidate), candidate))
        .filter(|(distance, candidate)| *distance <= near_enough && *distance < candidate.chars().count())
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// ", did you mean `x`?" or nothing: the tail of every error about an unknown name.
pub(crate) fn suggestion<'a>(name: &str, candidates: impl Iterator<Item = &'a str>) -> String {
    nearest(name, candidates)
        .map(|near| format!(", did you mean `{near}`?"))
        .unwrap_or_default()
}

/// What the parser says of text that is no TOML: one fault per line.
pub(in crate::domain) fn syntax_faults(file: &str, text: &str, faults: &[toml::de::Error]) -> Vec<FileError> {
    let mut errors: Vec<FileError> = faults.iter().map(|fault| explain_syntax(file, text, fault)).collect();
    errors.sort_by_key(|error| error.line);
    errors.dedup_by_key(|error| error.line);
    errors
}

/// It quotes none of the text.
fn explain_syntax(file: &str, text: &str, error: &toml::de::Error) -> FileError {
    let span = error.span();
    let start = span.as_ref().map(|span| span.start);
    let message = error.message().lines().next().unwrap_or_default();
    about(
        file,
        start.map(|start| line_of(text, start)),
        span.and_then(|span| key_at(text, span))
            .or_else(|| key_on_line(text, start)),
        message.to_owned(),
    )
}

fn explain(file: &str, text: &str, error: &ReadError) -> FileError {
    let start = error.span.as_ref().map(|span| span.start);
    let line = start.map(|start| line_of(text, start));
    let here = key_on_line(text, start);
    match &error.reason {
        Reason::UnknownKey { name, valid } => {
            let line = start.map(|start| line_of_key(text, start, name));
            about(file, line, Some(name), unknown("key", ("", name), valid))
        }
        Reason::UnknownValue { name, valid } => about(file, line, here, unknown("value", ("", name), valid)),
        Reason::MissingKey(name) => about(file, line, Some(name), format!("key `{name}` is missing")),
        Reason::RepeatedKey(name) => about(file, line, Some(name), format!("key `{name}` is given twice")),
        Reason::WrongType { expected, found } => {
            let hint = if wants_quotes(text, start, expected) {
                ": quote it"
            } else {
                ""
            };
            about(file, line, here, format!("expected {expected}, found {found}{hint}"))
        }
        Reason::Refused(message) => {
            let message = message.lines().next().unwrap_or_default();
            about(file, line, here, message.to_owned())
        }
    }
}

fn about(file: &str, line: Option<usize>, key: Option<&str>, message: String) -> FileError {
    let message = match key {
        Some(key) if !message.starts_with("key `") => format!("key `{key}`: {message}"),
        Some(_) | None => message,
    };
    FileError {
        file: file.to_owned(),
        line,
        key: key.map(str::to_owned),
        message,
    }
}

/// That a name (behind those of the tables around it) is none of the candidates.
pub(in crate::domain) fn unknown(what: &str, (table, name): (&str, &str), candidates: &[&str]) -> String {
    let near = suggestion(name, candidates.iter().copied());
    let valid = if near.is_empty() && !candidates.is_empty() {
        format!(", valid here: {}", candidates.join(", "))
    } else {
        near
    };
    let dot = if table.is_empty() { "" } else { "." };
    if name.len() <= ECHO_BYTES_MAX && name.chars().all(|c| c.is_ascii_alphanumeric() || "_-.".contains(c)) {
        format!("{what} `{table}{dot}{name}` is unknown{valid}")
    } else {
        format!("{what} is unknown{valid}")
    }
}

fn line_of(text: &str, offset: usize) -> usize {
    1 + text.bytes().take(offset).filter(|byte| *byte == b'\n').count()
}

/// The parser may report the table that holds a key: look for the key from there on.
fn line_of_key(text: &str, offset: usize, name: &str) -> usize {
    let first = line_of(text, offset);
    text.lines()
        .enumerate()
        .skip(first - 1)
        .find(|(_, line)| key_of(line) == Some(name) || table_of(line).is_some_and(|table| table.ends_with(name)))
        .map_or(first, |(index, _)| index + 1)
}

fn key_on_line(text: &str, offset: Option<usize>) -> Option<&str> {
    text.lines().nth(line_of(text, offset?) - 1).and_then(key_of)
}

/// The key or the table's name that a span is, where it stands as one: before `=`, or in a header.
fn key_at(text: &str, span: Range<usize>) -> Option<&str> {
    let before = text.get(..span.start)?.rsplit('\n').next()?.trim();
    let after = text.get(span.end..)?.trim_start();
    let is_header = before.starts_with('[') && !before.contains(['=', ',', ' ']) && after.starts_with([']', '.']);
    let is_key = !before.ends_with('=') && after.starts_with(['=', '.']);
    if is_header || is_key {
        name_in(text.get(span)?)
    } else {
        None
    }
}

/// Whether a text is wanted and something stands there without quotes that is neither an array nor a table: a number, a date.
fn wants_quotes(text: &str, start: Option<usize>, expected: &str) -> bool {
    let value = start.and_then(|start| text.get(start..)).unwrap_or_default();
    expected == "a string"
        && value.starts_with(|first: char| first.is_ascii_alphanumeric() || first == '-' || first == '+')
}

fn key_of(line: &str) -> Option<&str> {
    let (key, _) = line.split_once('=')?;
    name_in(key)
}

fn name_in(key: &str) -> Option<&str> {
    let key = key.trim().trim_matches('"');
    let is_name = !key.is_empty()
        && key.len() <= ECHO_BYTES_MAX
        && key.chars().all(|c| c.is_ascii_alphanumeric() || "_-.".contains(c));
    is_name.then_some(key)
}

fn table_of(line: &str) -> Option<&str> {
    line.trim()
        .strip_prefix('[')
        .map(|rest| rest.trim_start_matches('[').trim_end_matches(']'))
}

#[cfg(test)]
mod tests;
