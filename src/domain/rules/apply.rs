//! Applies a provider's body edits by splicing them into the client's text. Everything that no edit names stays byte
//! for byte: order, white space, number spelling, unknown members.

mod cursor;
mod fields;
mod refusal;
mod siblings;
mod walk;

use std::{borrow::Cow, ops::Range};

use crate::domain::{
    json_scan::Scan,
    rules::{
        body::{BodyEdit, BodyRules},
        condition::RequestFacts,
    },
};

/// Why a body was not edited.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EditError {
    /// The body is not the JSON text that was scanned, so nothing can be spliced into it.
    #[error("the body cannot be edited at byte {offset}: it is not one JSON object")]
    NotJson {
        /// Where the walk over the text gave up.
        offset: usize,
    },
    /// An edit of the provider's refuses the request.
    #[error("{message}")]
    Refused {
        /// The edit's line in the provider's file.
        line: usize,
        /// What the client is told, with a bounded part of what it sent.
        message: String,
    },
}

/// A text put in the place of a range of the original.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Splice<'r> {
    pub(super) range: Range<usize>,
    pub(super) text: Cow<'r, str>,
}

/// Edits a body that `scan` has accepted: the model becomes `upstream_model` where the body names it, then the
/// provider's edits follow in the order of its file. `None` means unchanged, without a copy.
///
/// An edit applies to every member of its name, should there be several. An edit whose place is missing does nothing;
/// `set` adds the last member of its path, but no parents. Numbers beyond every machine type are compared as infinite.
///
/// # Errors
/// An edit refuses the request, or `text` is not the object that was scanned.
pub fn edit_body(
    rules: &BodyRules,
    facts: &RequestFacts<'_>,
    text: &[u8],
    scan: &Scan,
) -> Result<Option<Vec<u8>>, EditError> {
    let mut edited: Option<Vec<u8>> = None;
    let mut splices = Vec::new();
    splices.extend(model_splice(facts, scan));
    for batch in &rules.batches {
        let current = edited.as_deref().unwrap_or(text);
        let edits = batch.iter().map(AsRef::as_ref).filter(|edit| edit.is_for(facts));
        walk::find(edits, current, &mut splices)?;
        if !splices.is_empty() {
            edited = Some(spliced(current, &mut splices)?);
            splices.clear();
        }
    }
    if !splices.is_empty() {
        edited = Some(spliced(edited.as_deref().unwrap_or(text), &mut splices)?);
    }
    Ok(edited)
}

/// The model's name on its way to the provider, where the body has it and it is another.
pub(super) fn model_splice(facts: &RequestFacts<'_>, scan: &Scan) -> Option<Splice<'static>> {
    let model = scan.model.as_ref()?;
    (!facts.operation.model_in_path() && model.text != facts.upstream_model).then(|| Splice {
        range: model.value.clone(),
        text: json_string(facts.upstream_model).into(),
    })
}

/// What one edit changes in a text.
pub(super) fn splices_of<'r>(edit: &'r BodyEdit, text: &[u8]) -> Result<Vec<Splice<'r>>, EditError> {
    let mut splices = Vec::new();
    walk::find(std::iter::once(edit), text, &mut splices)?;
    Ok(splices)
}

/// Edits one JSON object of an answer with all of `rules`. `None` means unchanged: also a text that is no object, or
/// that is broken, passes as it is.
pub(super) fn edit_object(rules: &BodyRules, text: &[u8]) -> Option<Vec<u8>> {
    let mut edited: Option<Vec<u8>> = None;
    let mut splices = Vec::new();
    for batch in &rules.batches {
        let current = edited.as_deref().unwrap_or(text);
        let end = walk::find(batch.iter().map(AsRef::as_ref), current, &mut splices).ok()?;
        let rest = current.get(end..).unwrap_or_default();
        if !rest.iter().all(u8::is_ascii_whitespace) {
            return None;
        }
        if !splices.is_empty() {
            edited = Some(spliced(current, &mut splices).ok()?);
            splices.clear();
        }
    }
    edited
}

/// `text` as a JSON string, with its quotes.
pub(super) fn json_string(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// The text with all splices done, in one copy. The splices do not overlap; those at one place keep their order.
pub(super) fn spliced(text: &[u8], splices: &mut [Splice<'_>]) -> Result<Vec<u8>, EditError> {
    splices.sort_by_key(|splice| splice.range.start);
    let added: usize = splices.iter().map(|splice| splice.text.len()).sum();
    let mut out = Vec::with_capacity(text.len() + added);
    let mut done = 0;
    for splice in splices {
        let kept = text.get(done..splice.range.start);
        out.extend_from_slice(kept.ok_or(EditError::NotJson { offset: done })?);
        out.extend_from_slice(splice.text.as_bytes());
        done = splice.range.end;
    }
    out.extend_from_slice(text.get(done..).ok_or(EditError::NotJson { offset: done })?);
    Ok(out)
}

#[cfg(test)]
mod tests;
