//! Replaces ranges of a text.

use std::{borrow::Cow, ops::Range};

use crate::domain::wire::json_scan::ScanError;

/// Why a body was not edited.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EditError {
    /// The body is not one JSON object, so nothing can be spliced into it.
    #[error("the body cannot be edited: {0}")]
    NotJson(#[from] ScanError),
    /// An edit refuses the request.
    #[error("{message}")]
    Refused {
        /// The edit's line in the provider's file.
        line: usize,
        /// The message to the client, which repeats at most a bounded part of the request.
        message: String,
    },
}

/// A text that replaces a range of the original.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::domain::rules) struct Splice<'r> {
    pub(in crate::domain::rules) range: Range<usize>,
    pub(in crate::domain::rules) text: Cow<'r, str>,
}

/// `text` as a JSON string, with its quotes.
pub(in crate::domain::rules) fn json_string(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Applies all splices, with one copy of the text. Splices must not overlap; those at the same position keep their order.
pub(in crate::domain::rules) fn apply_splices(text: &[u8], splices: &mut [Splice<'_>]) -> Vec<u8> {
    splices.sort_by_key(|splice| splice.range.start);
    let added: usize = splices.iter().map(|splice| splice.text.len()).sum();
    let mut out = Vec::with_capacity(text.len() + added);
    let mut done = 0;
    for splice in splices {
        out.extend_from_slice(text.get(done..splice.range.start).unwrap_or_default());
        out.extend_from_slice(splice.text.as_bytes());
        done = splice.range.end;
    }
    out.extend_from_slice(text.get(done..).unwrap_or_default());
    out
}
