//! A strict parser of TOML files. It either accepts a complete file, or returns errors with the file, the line, the key and the
//! nearest valid name. Errors never repeat values of the file, because a value could be a misplaced secret.

mod all;
mod reader;
#[cfg(test)]
mod tests;

use std::ops::Range;

use toml::Spanned;

use crate::domain::strict_toml::reader::{ReadError, ReadFault};

pub(crate) use crate::domain::strict_toml::all::{ParsedFile, lines, parse_all};

/// The maximum length of a name in an error, in bytes. Errors do not repeat longer names from the file.
const ECHO_BYTES_MAX: usize = 64;

/// An error in a TOML file, with its location.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct FileError {
    /// The name of the file, as passed to the parser.
    pub file: String,
    /// The line of the error, counted from 1; `None` if the file has no line for the error, for example because something is
    /// missing.
    pub line: Option<usize>,
    /// The TOML key that the error concerns; `None` if the error concerns no single key, or if weir cannot determine the key.
    pub key: Option<String>,
    /// The problem and how to solve it, in lower case and without a final period. It never repeats a value of the file.
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
    /// Creates an error about the complete file.
    pub fn for_file(file: &str, message: impl Into<String>) -> Self {
        Self {
            file: file.to_owned(),
            line: None,
            key: None,
            message: message.into(),
        }
    }

    /// Creates an error about `key` at `span`, a range of bytes of `text` as reported by `toml::Spanned`.
    pub fn at_span(file: &str, text: &str, span: Range<usize>, key: &str, message: impl Into<String>) -> Self {
        Self {
            file: file.to_owned(),
            line: Some(line_of(text, span.start)),
            key: Some(key.to_owned()),
            message: message.into(),
        }
    }
}

/// Returns the candidate that is nearest to `name`; `None` if `name` is probably not a misspelling of any candidate.
pub(crate) fn nearest<'a>(name: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let near_enough = (name.chars().count() / 3).max(2);
    candidates
        .map(|candidate| (strsim::damerau_levenshtein(name, candidate), candidate))
        .filter(|(distance, candidate)| *distance <= near_enough && *distance < candidate.chars().count())
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// Returns the end of an error message about an unknown name: ", did you mean `x`?" with the nearest candidate, or an empty
/// string if no candidate is near.
pub(crate) fn suggestion<'a>(name: &str, candidates: impl Iterator<Item = &'a str>) -> String {
    nearest(name, candidates)
        .map(|near| format!(", did you mean `{near}`?"))
        .unwrap_or_default()
}

/// Converts the parser's errors about invalid TOML to [`FileError`]s, at most one per line, sorted by line.
pub(in crate::domain) fn syntax_faults(file: &str, text: &str, faults: &[toml::de::Error]) -> Vec<FileError> {
    let mut errors: Vec<FileError> = faults.iter().map(|fault| explain_syntax(file, text, fault)).collect();
    errors.sort_by_key(|error| error.line);
    errors.dedup_by_key(|error| error.line);
    errors
}

/// Converts a syntax error of the parser to a [`FileError`], without quoting the file.
fn explain_syntax(file: &str, text: &str, error: &toml::de::Error) -> FileError {
    let span = error.span();
    let start = span.as_ref().map(|span| span.start);
    let message = match error.message().lines().next().unwrap_or_default() {
        "duplicate key" => "defined twice, keep one definition with all its settings",
        message => message,
    };
    file_error(
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
        ReadFault::UnknownKey { name, valid } => {
            let line = start.map(|start| line_of_key(text, start, name));
            file_error(file, line, Some(name), unknown_name("key", ("", name), valid))
        }
        ReadFault::UnknownValue { name, valid } => {
            file_error(file, line, here, unknown_name("value", ("", name), valid))
        }
        ReadFault::MissingKey(name) => file_error(file, line, Some(name), format!("key `{name}` is missing")),
        ReadFault::RepeatedKey(name) => file_error(file, line, Some(name), format!("key `{name}` is given twice")),
        ReadFault::WrongType { expected, found } => {
            let hint = if wants_quotes(text, start, expected) {
                ": quote it"
            } else {
                ""
            };
            file_error(file, line, here, format!("expected {expected}, found {found}{hint}"))
        }
        ReadFault::Refused(message) => {
            let message = message.lines().next().unwrap_or_default();
            file_error(file, line, here, message.to_owned())
        }
    }
}

fn file_error(file: &str, line: Option<usize>, key: Option<&str>, message: String) -> FileError {
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

/// Returns the message that `name` is unknown in the table with the path `table`. It contains the nearest candidate, or else all
/// candidates. `what` is the kind of name, such as "key".
pub(in crate::domain) fn unknown_name(what: &str, (table, name): (&str, &str), candidates: &[&str]) -> String {
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

/// Returns the line of the key `name`, counted from 1. The search begins at `offset`, the position that the parser reports. For
/// an unknown key, this can be the position of the table that contains the key.
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

/// Returns the key or table name at `span`; `None` if the span contains something else. A key is followed by `=`, and a table
/// name is in a header.
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

/// Whether a string is expected, but the value at `start` is unquoted, such as a number or a date.
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

/// The errors found so far in one file.
pub(in crate::domain) struct Faults<'a> {
    file: &'a str,
    text: &'a str,
    errors: Vec<FileError>,
    /// Whether the parser has found errors. If it has, missing keys are not reported, because the parser may have removed them.
    is_torn: bool,
    /// The spans of values that are not checked, because they may depend on keys that the parser removed or substituted.
    unsure: Vec<Range<usize>>,
}

impl<'a> Faults<'a> {
    /// Returns the parsed value with the errors found so far.
    ///
    /// # Errors
    /// All errors, if the parser could not produce a value.
    pub(in crate::domain) fn from_parsed<T>(
        file: &'a str,
        text: &'a str,
        parsed: ParsedFile<T>,
    ) -> Result<(T, Self), Vec<FileError>> {
        let Some(value) = parsed.value else {
            return Err(parsed.errors);
        };
        let faults = Self {
            file,
            text,
            is_torn: !parsed.errors.is_empty(),
            errors: parsed.errors,
            unsure: parsed.unsure,
        };
        Ok((value, faults))
    }

    pub(in crate::domain) fn add_at<T>(&mut self, place: &Spanned<T>, key: &str, message: impl Into<String>) {
        if !self.unsure.contains(&place.span()) {
            self.errors
                .push(FileError::at_span(self.file, self.text, place.span(), key, message));
        }
    }

    pub(in crate::domain) fn add_for_file(&mut self, message: impl Into<String>) {
        if !self.is_torn {
            self.errors.push(FileError::for_file(self.file, message));
        }
    }

    /// Returns the line on which the value `place` begins, counted from 1.
    pub(in crate::domain) fn line<T>(&self, place: &Spanned<T>) -> usize {
        FileError::at_span(self.file, self.text, place.span(), "", "")
            .line
            .unwrap_or(1)
    }

    pub(in crate::domain) fn is_empty(&self) -> bool {
        self.errors.is_empty()
    }

    /// Returns the errors, sorted by line.
    pub(in crate::domain) fn into_errors(self) -> Vec<FileError> {
        let mut errors = self.errors;
        errors.sort_by_key(|error| error.line);
        errors
    }
}
