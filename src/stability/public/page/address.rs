//! Addresses of models.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// What needs no encoding in a path: the unreserved characters of RFC 3986.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// The address of a model's page below `/status/`, or of its JSON.
pub(super) fn address(before: &str, name: &str) -> String {
    format!("{before}{}", utf8_percent_encode(name, SEGMENT))
}
