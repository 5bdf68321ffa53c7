//! Collects all errors of a file, so that one run reports them all.

use std::ops::Range;

use toml::Spanned;

use crate::domain::strict_toml::{FileError, ParsedFile};

/// The errors of one file.
pub(in crate::domain) struct Faults<'a> {
    file: &'a str,
    text: &'a str,
    errors: Vec<FileError>,
    /// Whether the parser has found errors already: missing keys may be keys that it removed.
    is_torn: bool,
    /// Spans of values that cannot be judged, because they may depend on removed or substituted keys.
    unsure: Vec<Range<usize>>,
}

impl<'a> Faults<'a> {
    /// The parsed value with the errors found so far; or, without a value, only the errors.
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

    /// The line where a value begins, counted from 1.
    pub(in crate::domain) fn line<T>(&self, place: &Spanned<T>) -> usize {
        FileError::at_span(self.file, self.text, place.span(), "", "")
            .line
            .unwrap_or(1)
    }

    pub(in crate::domain) fn is_empty(&self) -> bool {
        self.errors.is_empty()
    }

    /// The errors, in the order of their lines.
    pub(in crate::domain) fn into_errors(self) -> Vec<FileError> {
        let mut errors = self.errors;
        errors.sort_by_key(|error| error.line);
        errors
    }
}
