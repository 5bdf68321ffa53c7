//! The edits with which a provider file changes a request's headers and query. This module contains their form in the file
//! ([`RawHeaders`], [`RawQuery`]) and their compiled form ([`HeadEdits`], [`QueryEdits`]).

#[cfg(test)]
mod tests;

use std::{borrow::Cow, collections::BTreeMap};

use http::{HeaderMap, HeaderName, HeaderValue};
use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, utf8_percent_encode};
use serde::Deserialize;
use toml::Spanned;

/// `[headers]`: edits of a request's headers, which are applied in the order remove, rename, set, default.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RawHeaders {
    /// The names of the headers to remove.
    pub remove: Vec<Spanned<String>>,
    /// The headers to rename: from the old name to the new one.
    pub rename: BTreeMap<String, Spanned<String>>,
    /// The headers to set. Their values replace those that the client sent.
    pub set: BTreeMap<String, Spanned<String>>,
    /// The headers to add if the client did not send them.
    pub default: BTreeMap<String, Spanned<String>>,
}

/// `[query]`: edits of a request's query, which are applied in the order remove, set, default.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RawQuery {
    /// The names of the parameters to remove.
    pub remove: Vec<Spanned<String>>,
    /// The parameters to set. Their values replace those that the client sent.
    pub set: BTreeMap<String, Spanned<String>>,
    /// The parameters to add if the client did not send them.
    pub default: BTreeMap<String, Spanned<String>>,
}

/// A provider's header edits in the order in which they are applied: remove, rename, set, default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeadEdits(pub(super) Vec<HeadEdit>);

/// One edit of one header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HeadEdit {
    /// The edit's line in the provider's file, counted from 1.
    pub(super) line: usize,
    /// The operation on the header.
    pub(super) op: HeadOp,
}

/// The operation of an edit on a header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum HeadOp {
    /// Removes the header.
    Remove(HeaderName),
    /// Renames the first header to the second. Existing values of the second header are removed.
    Rename(HeaderName, HeaderName),
    /// Sets the header's value, replacing the values that the client sent.
    Set(HeaderName, HeaderValue),
    /// Sets the header's value if the client did not send the header.
    Default(HeaderName, HeaderValue),
}

impl HeadEdits {
    /// Returns all edits in the order in which they are applied.
    pub(super) fn iter(&self) -> impl Iterator<Item = &HeadEdit> {
        self.0.iter()
    }
}

impl HeadEdit {
    /// Applies this edit to the head of a request.
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

/// The head of a request whose headers can be edited. The gateway implements this trait for its own types.
pub(crate) trait EditableHead {
    /// Returns all values of a header, in order.
    fn values(&self, name: &HeaderName) -> Vec<HeaderValue>;
    /// Removes a header with all its values.
    fn remove(&mut self, name: &HeaderName);
    /// Adds a value to a header, after the existing values.
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

/// Applies all edits to the head of a request, in the documented order: remove, rename, set, default.
pub(crate) fn edit_head(edits: &HeadEdits, head: &mut impl EditableHead) {
    for edit in edits.iter() {
        edit.apply(head);
    }
}

/// The characters that are percent-encoded in the name or value of a parameter that an edit adds.
const ESCAPED: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'#')
    .add(b'%')
    .add(b'&')
    .add(b'\'')
    .add(b'+')
    .add(b'<')
    .add(b'=')
    .add(b'>')
    .add(b'?');

/// A provider's query edits in the order in which they are applied: remove, set, default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueryEdits(pub(super) Vec<QueryEdit>);

/// One edit of one query parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct QueryEdit {
    /// The edit's line in the provider's file, counted from 1.
    pub(super) line: usize,
    /// The query parameter's name, unescaped.
    pub(super) name: String,
    /// The operation on the query parameter.
    pub(super) op: QueryOp,
}

/// The operation of an edit on a query parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum QueryOp {
    /// Removes the parameter.
    Remove,
    /// Sets the parameter's value, replacing the values that the client sent.
    Set(String),
    /// Sets the parameter's value if the client did not send the parameter.
    Default(String),
}

impl QueryEdits {
    /// Returns all edits in the order in which they are applied.
    pub(super) fn iter(&self) -> impl Iterator<Item = &QueryEdit> {
        self.0.iter()
    }
}

impl QueryEdit {
    /// Returns the query after this edit. All other parameters stay as they are written. `query` is `None` if the request has no
    /// query.
    pub(super) fn apply<'q>(&self, query: Option<Cow<'q, str>>) -> Option<Cow<'q, str>> {
        let is_there = query
            .as_deref()
            .is_some_and(|query| query.split('&').any(|pair| self.matches_pair(pair)));
        match &self.op {
            QueryOp::Remove if is_there => self.without(query.as_deref()).map(Cow::Owned),
            QueryOp::Set(value) => Some(self.added(self.without(query.as_deref()).as_deref(), value).into()),
            QueryOp::Default(value) if !is_there => Some(self.added(query.as_deref(), value).into()),
            QueryOp::Remove | QueryOp::Default(_) => query,
        }
    }

    fn matches_pair(&self, pair: &str) -> bool {
        let name = pair.split_once('=').map_or(pair, |(name, _)| name);
        let name = name.replace('+', " ");
        percent_decode_str(&name).eq(self.name.bytes())
    }

    fn without(&self, query: Option<&str>) -> Option<String> {
        let kept: Vec<&str> = query?.split('&').filter(|pair| !self.matches_pair(pair)).collect();
        let kept = kept.join("&");
        (!kept.is_empty()).then_some(kept)
    }

    fn added(&self, query: Option<&str>, value: &str) -> String {
        let name = utf8_percent_encode(&self.name, ESCAPED);
        let value = utf8_percent_encode(value, ESCAPED);
        match query {
            Some(query) => format!("{query}&{name}={value}"),
            None => format!("{name}={value}"),
        }
    }
}

/// Returns the client's query after all edits, in the order remove, set, default. The client's API key must already be removed
/// from `query`, which is `None` if the request has no query.
pub(crate) fn edit_query<'q>(edits: &QueryEdits, query: Option<&'q str>) -> Option<Cow<'q, str>> {
    edits
        .iter()
        .fold(query.map(Cow::Borrowed), |query, edit| edit.apply(query))
}
