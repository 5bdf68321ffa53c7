//! Finds the references to state at a provider in a request body (see [`crate::domain::wire::provider_state`]), and the names of
//! models other than the requested one. The protocol determines at which positions they are. The user's own data never contains
//! them.

use std::{borrow::Cow, ops::Range};

use super::body_position::BodyPosition;
use super::items::InputItem;
use super::lexer::{JsonToken, JsonTokenKind};
use super::{ScanError, string};
use crate::domain::wire::Protocol;
use crate::domain::wire::json_scan::items::NamedModels;
use crate::domain::wire::json_scan::lexer::DEPTH_MAX;
use crate::domain::wire::json_scan::string::BodyKey;
use crate::domain::wire::provider_state::{StateId, StateKind, is_in_provider_store};

/// The prefix of the identifiers of the operator's own skills. All other skills are public.
const OWN_SKILL: &str = "skill_";

/// A reference to state at a provider in a request body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference {
    /// The kind of the state that the reference identifies.
    pub kind: StateKind,
    /// The digest of the state's identifier.
    pub id: StateId,
    /// The position of the identifier in the body, including both quotes.
    pub at: Range<usize>,
}

impl Reference {
    /// Returns the identifier as the client sent it. `body` must be the body that was scanned.
    pub fn text<'b>(&self, body: &'b [u8]) -> Cow<'b, str> {
        string::unescaped(body.get(self.at.clone()).unwrap_or_default()).unwrap_or_default()
    }
}

/// A reader that collects the references in a body. It gets every key and value in order.
#[derive(Debug)]
pub(super) struct ReferenceReader {
    found: Vec<Reference>,
    models: NamedModels,
    /// The maximum number of references that a body can have.
    found_max: usize,
    /// The positions of the open containers by depth. Index 0 has the position of the body itself.
    positions: [BodyPosition; DEPTH_MAX + 1],
    /// The position of the next value, if it is the value of a member; otherwise `None`.
    next: Option<BodyPosition>,
    /// The input item that is being read; `None` outside of items.
    item: Option<InputItem>,
    /// Whether `store` requests that the provider stores the answer; `None` if `store` is missing.
    is_stored: Option<bool>,
}

impl ReferenceReader {
    /// Creates a reader at the start of a body.
    pub(super) fn new(protocol: Protocol, found_max: usize) -> Self {
        let mut positions = [BodyPosition::Elsewhere; DEPTH_MAX + 1];
        positions[0] = BodyPosition::of_body(protocol);
        Self {
            found: Vec::new(),
            models: NamedModels::default(),
            found_max,
            positions,
            next: None,
            item: None,
            is_stored: None,
        }
    }

    /// Returns the references and the model names. Called after the end of the body.
    pub(super) fn finish(mut self, text: &[u8]) -> Result<(Vec<Reference>, NamedModels), ScanError> {
        self.end_item(text)?;
        // If the provider stores no answers, an item with its own text is content, not a reference.
        if self.is_stored == Some(false) {
            self.found.retain(|found| found.kind != StateKind::SummarizedItem);
        }
        Ok((self.found, self.models))
    }

    /// Handles a key of an object at `depth`, where 1 is the top level.
    pub(super) fn on_key(&mut self, depth: usize, key: Option<BodyKey>, text: &[u8]) -> Result<(), ScanError> {
        let place = self.container_position(depth);
        self.next = Some(place.member(key));
        match place {
            BodyPosition::Input => {
                if let Some(item) = &mut self.item {
                    item.on_member(key);
                }
            }
            BodyPosition::Responses => self.end_item(text)?,
            _ => {}
        }
        Ok(())
    }

    /// Whether weir reads the next value if it is a string. That value is inside `depth` containers.
    pub(super) fn is_string_read(&self, depth: usize) -> bool {
        self.next
            .unwrap_or_else(|| self.container_position(depth))
            .is_string_read()
    }

    /// Handles a string inside `depth` containers.
    pub(super) fn on_string(&mut self, depth: usize, text: &[u8], value: JsonToken) -> Result<(), ScanError> {
        let place = self.take_position(depth);
        if let Some(kind) = place.named_state() {
            return self.add_if_named(kind, text, value);
        }
        match place {
            BodyPosition::Store => self.is_stored = Some(true),
            BodyPosition::Elsewhere | BodyPosition::Own => {}
            place if place.is_model_name() => {
                let is_fallback = matches!(place, BodyPosition::Fallbacks | BodyPosition::FallbackModel);
                self.models.add(text, value, is_fallback);
            }
            _ => {
                if let Some(item) = &mut self.item {
                    item.on_string(place, text, value);
                }
            }
        }
        Ok(())
    }

    /// Handles a number or literal inside `depth` containers.
    pub(super) fn on_scalar(&mut self, depth: usize, kind: JsonTokenKind) {
        if self.take_position(depth) == BodyPosition::Store {
            self.is_stored = Some(kind != JsonTokenKind::False || self.is_stored == Some(true));
        }
    }

    /// Handles the beginning of an object or array, which opens level `depth`.
    pub(super) fn on_container(&mut self, depth: usize, kind: JsonTokenKind, text: &[u8]) -> Result<(), ScanError> {
        let place = self.take_position(depth.saturating_sub(1));
        if let Some(of_container) = self.positions.get_mut(depth) {
            *of_container = place;
        }
        match (place, kind) {
            (BodyPosition::Input, JsonTokenKind::Object) => {
                self.end_item(text)?;
                self.item = Some(InputItem::default());
            }
            (BodyPosition::Store, _) => self.is_stored = Some(true),
            _ => {}
        }
        Ok(())
    }

    /// Returns the position of the open container at level `depth`.
    fn container_position(&self, depth: usize) -> BodyPosition {
        self.positions.get(depth).copied().unwrap_or_default()
    }

    /// Returns the position of the next value: a member or an element of the container at level `depth`.
    fn take_position(&mut self, depth: usize) -> BodyPosition {
        self.next.take().unwrap_or_else(|| self.container_position(depth))
    }

    fn add_if_named(&mut self, kind: StateKind, text: &[u8], value: JsonToken) -> Result<(), ScanError> {
        let name = string::unescaped(value.bytes_in(text)).unwrap_or_default();
        let is_name = match kind {
            StateKind::FileUri => is_in_provider_store(&name),
            StateKind::Skill => name.starts_with(OWN_SKILL),
            _ => !name.is_empty(),
        };
        match is_name {
            true => self.add_reference(kind, &name, value),
            false => Ok(()),
        }
    }

    fn end_item(&mut self, text: &[u8]) -> Result<(), ScanError> {
        let Some(item) = self.item.take() else { return Ok(()) };
        let Some(kind) = item.named_state() else { return Ok(()) };
        item.ids().try_for_each(|id| self.add_if_named(kind, text, id))
    }

    fn add_reference(&mut self, kind: StateKind, id: &str, value: JsonToken) -> Result<(), ScanError> {
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
