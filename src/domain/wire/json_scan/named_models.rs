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
    places: Vec<Place>,
    has_more: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Place {
    /// With both quotes.
    at: Range<usize>,
    is_fallback: bool,
}

impl NamedModels {
    /// A string of the body that is a model's name. `is_fallback`: the model is to answer when the one asked for declines.
    pub(super) fn note(&mut self, text: &[u8], value: Token, is_fallback: bool) {
        let name = value.of(text);
        let is_same = |place: &&mut Place| text.get(place.at.clone()) == Some(name);
        if let Some(known) = self.places.iter_mut().find(is_same) {
            known.is_fallback |= is_fallback;
        } else if self.places.len() < NAMED_MODELS_MAX {
            let at = value.start..value.end;
            self.places.push(Place { at, is_fallback });
        } else {
            self.has_more = true;
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Whether there are more than are kept.
    pub fn has_more(&self) -> bool {
        self.has_more
    }

    /// The names, escapes decoded, out of the body that was scanned, empty for one that no text can hold; and whether the model may answer in the place of the one
    /// that was asked for.
    pub fn names<'b>(&self, body: &'b [u8]) -> impl Iterator<Item = (Cow<'b, str>, bool)> {
        let name = |place: &Place| string::unescaped(body.get(place.at.clone()).unwrap_or_default());
        let named = self.places.iter();
        named.map(move |place| (name(place).unwrap_or_default(), place.is_fallback))
    }
}
