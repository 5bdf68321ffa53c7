//! The models that a request names in addition to the one that is to answer.

use std::{borrow::Cow, ops::Range};

use super::lexer::JsonToken;
use super::string;

/// The maximum number of different names that are kept of one body.
const NAMED_MODELS_MAX: usize = 16;

/// The models that a request names in addition to the one that is to answer: its fallbacks, advisers, and the models that its
/// tools run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamedModels {
    /// One entry for each spelling; at most [`NAMED_MODELS_MAX`].
    models: Vec<NamedModelSpan>,
    has_more: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct NamedModelSpan {
    /// The position of the name in the body, with both quotes.
    span: Range<usize>,
    is_fallback: bool,
}

impl NamedModels {
    /// Records a string of the body that is a model's name. `is_fallback`: the model is to answer if the requested one declines.
    pub(super) fn add(&mut self, text: &[u8], value: JsonToken, is_fallback: bool) {
        let name = value.bytes_in(text);
        let is_same = |model: &&mut NamedModelSpan| text.get(model.span.clone()) == Some(name);
        if let Some(known) = self.models.iter_mut().find(is_same) {
            known.is_fallback |= is_fallback;
        } else if self.models.len() < NAMED_MODELS_MAX {
            let span = value.start..value.end;
            self.models.push(NamedModelSpan { span, is_fallback });
        } else {
            self.has_more = true;
        }
    }

    /// Whether the request names no further models.
    pub fn is_empty(&self) -> bool {
        self.models.is_empty()
    }

    /// Whether the request names more models than are kept.
    pub fn has_more(&self) -> bool {
        self.has_more
    }

    /// Each name with its escapes decoded, from the body that was scanned, and whether that model is a fallback for the requested
    /// one. A name that is not valid text is empty.
    pub fn names<'b>(&self, body: &'b [u8]) -> impl Iterator<Item = (Cow<'b, str>, bool)> {
        let name = |model: &NamedModelSpan| string::unescaped(body.get(model.span.clone()).unwrap_or_default());
        let named = self.models.iter();
        named.map(move |model| (name(model).unwrap_or_default(), model.is_fallback))
    }
}
