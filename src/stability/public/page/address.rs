//! The addresses of models' pages.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// Encodes everything in a path segment but the unreserved characters of RFC 3986.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// The address of a model's page or JSON: its encoded name after `before`.
pub(super) fn address(before: &str, name: &str) -> String {
    format!("{before}{}", utf8_percent_encode(name, SEGMENT))
}
