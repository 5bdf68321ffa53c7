//! Applies a provider's edits. Body edits are spliced into the client's own text: whatever no edit names stays byte for
//! byte, with its order, white space, number spelling and unknown members.

mod walk;

use std::{borrow::Cow, ops::Range};

use http::{HeaderMap, HeaderName, HeaderValue};

use crate::domain::{
    json_scan::Scan,
    operation::Operation,
    rules::{body::BodyRules, compile::HeadEdits},
};

/// The body is not the JSON text that was scanned, so nothing can be spliced into it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the body cannot be edited at byte {offset}: it is not one JSON object")]
pub struct EditError {
    /// Where the walk over the text gave up.
    pub offset: usize,
}

/// A text put in the place of a range of the original.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Splice<'r> {
    range: Range<usize>,
    text: Cow<'r, str>,
}

/// Edits a body that `scan` has accepted: the model becomes `upstream_model` where the body names it, then the
/// provider's edits follow in the order of its file. `None` means unchanged, without a copy.
///
/// An edit applies to every member of its name, should there be several. An edit whose place is missing does nothing;
/// `set` adds the last member of its path, but no parents. Numbers beyond every machine type are compared as infinite.
///
/// # Errors
/// `text` is not the object that was scanned.
pub fn edit_body(
    rules: &BodyRules,
    operation: Operation,
    upstream_model: &str,
    text: &[u8],
    scan: &Scan,
) -> Result<Option<Vec<u8>>, EditError> {
    let mut edited: Option<Vec<u8>> = None;
    let mut splices = Vec::new();
    if let Some(model) = &scan.model
        && !operation.model_in_path()
        && model.text != upstream_model
    {
        splices.push(Splice {
            range: model.value.clone(),
            text: json_string(upstream_model).into(),
        });
    }
    for batch in &rules.batches {
        let current = edited.as_deref().unwrap_or(text);
        walk::find(batch, operation.protocol(), current, &mut splices)?;
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

/// A head whose headers can be edited; the gateway's own kind of head is one more.
pub trait Head {
    /// All values of a header, in order.
    fn values(&self, name: &HeaderName) -> Vec<HeaderValue>;
    /// Drops a header with all its values.
    fn remove(&mut self, name: &HeaderName);
    /// Adds a value behind those that are there.
    fn append(&mut self, name: &HeaderName, value: &HeaderValue);
}

impl Head for HeaderMap {
    fn values(&self, name: &HeaderName) -> Vec<HeaderValue> {
        self.get_all(name).iter().cloned().collect()
    }

    fn remove(&mut self, name: &HeaderName) {
        Self::remove(self, name);
    }

    fn append(&mut self, name: &HeaderName, value: &HeaderValue) {
        Self::append(self, name.clone(), value.clone());
    }
}

/// Edits a head in the documented order: remove, rename, set, default. A renamed header replaces one that already has
/// the new name.
pub fn edit_head(edits: &HeadEdits, head: &mut impl Head) {
    for name in &edits.remove {
        head.remove(name);
    }
    for (from, to) in &edits.rename {
        let values = head.values(from);
        if values.is_empty() {
            continue;
        }
        head.remove(from);
        head.remove(to);
        for value in &values {
            head.append(to, value);
        }
    }
    for (name, value) in &edits.set {
        head.remove(name);
        head.append(name, value);
    }
    for (name, value) in &edits.default {
        if head.values(name).is_empty() {
            head.append(name, value);
        }
    }
}

/// `text` as a JSON string, with its quotes.
pub(super) fn json_string(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// The text with all splices done, in one copy. The splices do not overlap; those at one place keep their order.
fn spliced(text: &[u8], splices: &mut [Splice<'_>]) -> Result<Vec<u8>, EditError> {
    splices.sort_by_key(|splice| splice.range.start);
    let added: usize = splices.iter().map(|splice| splice.text.len()).sum();
    let mut out = Vec::with_capacity(text.len() + added);
    let mut done = 0;
    for splice in splices {
        out.extend_from_slice(text.get(done..splice.range.start).ok_or(EditError { offset: done })?);
        out.extend_from_slice(splice.text.as_bytes());
        done = splice.range.end;
    }
    out.extend_from_slice(text.get(done..).ok_or(EditError { offset: done })?);
    Ok(out)
}

#[cfg(test)]
mod tests;
