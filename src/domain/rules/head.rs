//! Edits of a request's headers and query.

use http::{HeaderMap, HeaderName, HeaderValue};

/// Header edits in the order in which they are applied: all removals, then renames, values set, and defaults.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeadEdits(pub(super) Vec<HeadEdit>);

/// One edit of one header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HeadEdit {
    /// Its line in the provider's file, counted from 1.
    pub(super) line: usize,
    /// What is done to the header.
    pub(super) op: HeadOp,
}

/// What is done to a header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum HeadOp {
    /// Removes the header.
    Remove(HeaderName),
    /// Moves its values to another name, replacing that header's values.
    Rename(HeaderName, HeaderName),
    /// Sets the value, replacing what the client sent.
    Set(HeaderName, HeaderValue),
    /// Sets the value if the client sent none.
    Default(HeaderName, HeaderValue),
}

impl HeadEdits {
    /// All edits in their order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &HeadEdit> {
        self.0.iter()
    }
}

impl HeadEdit {
    /// Applies this edit to a head.
    pub(super) fn apply(&self, head: &mut impl EditableHead) {
        match &self.op {
            HeadOp::Remove(name) => head.remove(name),
            HeadOp::Rename(from, to) => {
                let values = head.values(from);
                if values.is_empty() {
                    return;
                }
                head.remove(from);
                head.remove(to);
                for value in &values {
                    head.append(to, value);
                }
            }
            HeadOp::Set(name, value) => {
                head.remove(name);
                head.append(name, value);
            }
            HeadOp::Default(name, value) => {
                if head.values(name).is_empty() {
                    head.append(name, value);
                }
            }
        }
    }
}

/// A head whose headers can be edited. The gateway implements it for its own heads.
pub(crate) trait EditableHead {
    /// All values of a header, in order.
    fn values(&self, name: &HeaderName) -> Vec<HeaderValue>;
    /// Drops a header with all its values.
    fn remove(&mut self, name: &HeaderName);
    /// Adds a value after the existing ones.
    fn append(&mut self, name: &HeaderName, value: &HeaderValue);
}

impl EditableHead for HeaderMap {
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

/// Edits a head in the documented order: remove, rename, set, default.
pub(crate) fn edit_head(edits: &HeadEdits, head: &mut impl EditableHead) {
    for edit in edits.iter() {
        edit.apply(head);
    }
}

#[cfg(test)]
mod tests;
