//! The models that a request names beside the one that is to answer: what takes its place when it declines, what advises it,
//! what its tools run.

use std::{borrow::Cow, ops::Range};

use super::lexer::Token;
use super::string;

/// The most different names that are kept of one body.
const NAMED_MODELS_MAX: usize = 16;

/// Where a body names further models.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamedModels {
    /// One for each spelling; at most [`NAMED_MODELS_MAX`].
    models: Vec<NamedModel>,
    has_more: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct NamedModel {
    /// Where its name is in the body, with both quotes.
    span: Range<usize>,
    is_fallback: bool,
}

impl NamedModels {
    /// A string of the body that is a model's name. `is_fallback`: the model is to answer when the one asked for declines.
    pub(super) fn note(&mut self, text: &[u8], value: Token, is_fallback: bool) {
        let name = value.of(text);
        let is_same = |model: &&mut NamedModel| text.get(model.span.clone()) == Some(name);
        if let Some(known) = self.models.iter_mut().find(is_same) {
            known.is_fallback |= is_fallback;
        } else if self.models.len() < NAMED_MODELS_MAX {
            let span = value.start..value.end;
            self.models.push(NamedModel { span, is_fallback });
        } else {
            self.has_more = true;
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.models.is_empty()
    }

    /// Whether there are more than are kept.
    pub fn has_more(&self) -> bool {
        self.has_more
    }

    /// Each name with its escapes decoded, out of the body that was scanned, and whether that model is a fallback for the one asked
    /// for. A name that no string can hold is empty.
    pub fn names<'b>(&self, body: &'b [u8]) -> impl Iterator<Item = (Cow<'b, str>, bool)> {
        let name = |model: &NamedModel| string::unescaped(body.get(model.span.clone()).unwrap_or_default());
        let named = self.models.iter();
        named.map(move |model| (name(model).unwrap_or_default(), model.is_fallback))
    }
}
