//! Collects all faults of a file, so one run reports them all.

use std::ops::Range;

use toml::Spanned;

use crate::domain::strict_toml::{FileError, Parsed};

/// The faults of one file.
pub(in crate::domain) struct Faults<'a> {
    file: &'a str,
    text: &'a str,
    errors: Vec<FileError>,
    /// Whether the parser found faults already: what is absent may be what it struck out.
    is_torn: bool,
    /// Of these nothing can be said.
    unsure: Vec<Range<usize>>,
}

impl<'a> Faults<'a> {
    /// What was parsed, and the faults that were found so far; or all of them.
    pub(in crate::domain) fn after<T>(
        file: &'a str,
        text: &'a str,
        parsed: Parsed<T>,
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

    pub(in crate::domain) fn at<T>(&mut self, place: &Spanned<T>, key: &str, message: impl Into<String>) {
        if !self.unsure.contains(&place.span()) {
            self.errors
                .push(FileError::at(self.file, self.text, place.span(), key, message));
        }
    }

    pub(in crate::domain) fn whole(&mut self, message: impl Into<String>) {
        if !self.is_torn {
            self.errors.push(FileError::whole(self.file, message));
        }
    }

    /// The line where something begins, counted from 1.
    pub(in crate::domain) fn line<T>(&self, place: &Spanned<T>) -> usize {
        FileError::at(self.file, self.text, place.span(), "", "")
            .line
            .unwrap_or(1)
    }

    pub(in crate::domain) fn is_empty(&self) -> bool {
        self.errors.is_empty()
    }

    /// In the order of their lines.
    pub(in crate::domain) fn into_errors(self) -> Vec<FileError> {
        let mut errors = self.errors;
        errors.sort_by_key(|error| error.line);
        errors
    }
}
