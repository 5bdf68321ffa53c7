//! Gathers every fault of a file, so that one look is enough to mend it.

use toml::Spanned;

use crate::domain::strict_toml::FileError;

/// The faults of one file.
pub(in crate::domain) struct Faults<'a> {
    file: &'a str,
    text: &'a str,
    errors: Vec<FileError>,
}

impl<'a> Faults<'a> {
    pub(in crate::domain) fn new(file: &'a str, text: &'a str) -> Self {
        Self {
            file,
            text,
            errors: Vec::new(),
        }
    }

    pub(in crate::domain) fn at<T>(&mut self, place: &Spanned<T>, key: &str, message: impl Into<String>) {
        self.errors
            .push(FileError::at(self.file, self.text, place.span(), key, message));
    }

    pub(in crate::domain) fn whole(&mut self, message: impl Into<String>) {
        self.errors.push(FileError::whole(self.file, message));
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

    pub(in crate::domain) fn into_errors(self) -> Vec<FileError> {
        self.errors
    }
}
