//! Finds where a request names state at a provider (see [`crate::domain::wire::provider_state`]), and models beside the one
//! that is to answer, by the places of its protocol. What stands in the user's own data names nothing, whatever it is called.

use std::{borrow::Cow, ops::Range};

use super::body_position::BodyPosition;
use super::items::Item;
use super::key::Key;
use super::levels::DEPTH_MAX;
use super::lexer::{Kind, Token};
use super::named_models::NamedModels;
use super::{ScanError, string};
use crate::domain::wire::Protocol;
use crate::domain::wire::provider_state::{StateId, StateKind, is_in_own_store};

/// What the identifiers of an operator's own skills begin with; the others are everybody's.
const OWN_SKILL: &str = "skill_";

/// A place in a request that names state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference {
    /// What is named.
    pub kind: StateKind,
    /// By which identifier.
    pub id: StateId,
    /// Where it stands in the body, with both quotes.
    pub at: Range<usize>,
}

impl Reference {
    /// The identifier as the client gave it, out of the body that was scanned.
    pub fn text<'b>(&self, body: &'b [u8]) -> Cow<'b, str> {
        string::unescaped(body.get(self.at.clone()).unwrap_or_default()).unwrap_or_default()
    }
}

/// The names found so far. Told of every key and value in order.
#[derive(Debug)]
pub(super) struct References {
    found: Vec<Reference>,
    models: NamedModels,
    /// How many references there may be.
    found_max: usize,
    /// The place of each open container, and before them that of the body.
    places: [BodyPosition; DEPTH_MAX + 1],
    /// The place of the next value, if it is a member's.
    next: Option<BodyPosition>,
    /// The input item that has begun, if any.
    item: Option<Item>,
    /// Whether the provider is told to keep the answer; `None`: it is told nothing.
    is_stored: Option<bool>,
}

impl References {
    /// For a body of which nothing was read.
    pub(super) fn new(protocol: Protocol, found_max: usize) -> Self {
        let mut places = [BodyPosition::Elsewhere; DEPTH_MAX + 1];
        places[0] = BodyPosition::of_body(protocol);
        Self {
            found: Vec::new(),
            models: NamedModels::default(),
            found_max,
            places,
            next: None,
            item: None,
            is_stored: None,
        }
    }

    /// The names in the whole body: those of state, and those of models.
    pub(super) fn finish(mut self, text: &[u8]) -> Result<(Vec<Reference>, NamedModels), ScanError> {
        self.end_item(text)?;
        // An item with a text of its own is content where nothing is kept.
        if self.is_stored == Some(false) {
            self.found.retain(|found| found.kind != StateKind::SummarizedItem);
        }
        Ok((self.found, self.models))
    }

    /// A key of an object at `depth` (1: the top level).
    pub(super) fn key(&mut self, depth: usize, key: Option<Key>, text: &[u8]) -> Result<(), ScanError> {
        let place = self.at(depth);
        self.next = Some(place.member(key));
        match place {
            BodyPosition::Input => {
                if let Some(item) = &mut self.item {
                    item.member(key);
                }
            }
            BodyPosition::Responses => self.end_item(text)?,
            _ => {}
        }
        Ok(())
    }

    /// Whether weir goes by the next value, `depth` containers deep, if it is a string.
    pub(super) fn is_read(&self, depth: usize) -> bool {
        self.next.unwrap_or_else(|| self.at(depth)).is_read()
    }

    /// A string, `depth` containers deep.
    pub(super) fn string(&mut self, depth: usize, text: &[u8], value: Token) -> Result<(), ScanError> {
        let place = self.take(depth);
        if let Some(kind) = place.names() {
            return self.name(kind, text, value);
        }
        match place {
            BodyPosition::Store => self.is_stored = Some(true),
            BodyPosition::Elsewhere | BodyPosition::Own => {}
            place if place.names_model() => {
                let is_fallback = matches!(place, BodyPosition::Fallbacks | BodyPosition::FallbackModel);
                self.models.note(text, value, is_fallback);
            }
            _ => {
                if let Some(item) = &mut self.item {
                    item.string(place, text, value);
                }
            }
        }
        Ok(())
    }

    /// A number or literal, `depth` containers deep.
    pub(super) fn scalar(&mut self, depth: usize, kind: Kind) {
        if self.take(depth) == BodyPosition::Store {
            self.is_stored = Some(kind != Kind::False || self.is_stored == Some(true));
        }
    }

    /// An object or array has opened, the container number `depth`.
    pub(super) fn open(&mut self, depth: usize, kind: Kind, text: &[u8]) -> Result<(), ScanError> {
        let place = self.take(depth.saturating_sub(1));
        if let Some(of_container) = self.places.get_mut(depth) {
            *of_container = place;
        }
        match (place, kind) {
            (BodyPosition::Input, Kind::Object) => {
                self.end_item(text)?;
                self.item = Some(Item::default());
            }
            (BodyPosition::Store, _) => self.is_stored = Some(true),
            _ => {}
        }
        Ok(())
    }

    /// The place of an open container.
    fn at(&self, depth: usize) -> BodyPosition {
        self.places.get(depth).copied().unwrap_or_default()
    }

    /// The place of the value that is next: a member of the container number `depth`, or an element of it.
    fn take(&mut self, depth: usize) -> BodyPosition {
        self.next.take().unwrap_or_else(|| self.at(depth))
    }

    fn name(&mut self, kind: StateKind, text: &[u8], value: Token) -> Result<(), ScanError> {
        let name = string::unescaped(value.of(text)).unwrap_or_default();
        let is_name = match kind {
            StateKind::FileUri => is_in_own_store(&name),
            StateKind::Skill => name.starts_with(OWN_SKILL),
            _ => !name.is_empty(),
        };
        match is_name {
            true => self.push(kind, &name, value),
            false => Ok(()),
        }
    }

    fn end_item(&mut self, text: &[u8]) -> Result<(), ScanError> {
        let Some(item) = self.item.take() else { return Ok(()) };
        let Some(kind) = item.names() else { return Ok(()) };
        item.ids().try_for_each(|id| self.name(kind, text, id))
    }

    fn push(&mut self, kind: StateKind, id: &str, value: Token) -> Result<(), ScanError> {
        if self.found.len() >= self.found_max {
            return Err(ScanError::TooManyReferences {
                at: value.start,
                references_max: self.found_max,
            });
        }
        self.found.push(Reference {
            kind,
            id: StateId::new(id),
            at: value.start..value.end,
        });
        Ok(())
    }
}
