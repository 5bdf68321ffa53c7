//! Finds two things in a request body: the references to state at a provider (see [`crate::domain::wire::provider_state`]), and
//! the names of models other than the requested one. The protocol determines the positions at which they can be. The user's own
//! data is not searched for them.

use std::{borrow::Cow, ops::Range};

use crate::domain::wire::{
    Protocol,
    json_scan::{
        ScanError,
        body_position::BodyPosition,
        lexer::{DEPTH_MAX, JsonToken, JsonTokenKind},
        string::{self, BodyKey},
    },
    provider_state::{StateId, StateKind, is_in_provider_store},
};

/// The prefix of the identifiers of the operator's own skills. All other skills are public.
const OWN_SKILL: &str = "skill_";

/// A reference in a request body to state at a provider.
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

    /// Whether the reader uses the next value if that value is a string. The value is inside `depth` containers.
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

/// An input item of the Responses protocol while it is being read. The item either has its own content or is a reference, which
/// the provider looks up by its identifier. Only the end of the item shows which of the two it is. A repeated member is
/// interpreted in the way that makes the item a reference.
#[derive(Debug, Default)]
pub(super) struct InputItem {
    id: Option<JsonToken>,
    /// The values of further members named `id`.
    further_ids: Vec<JsonToken>,
    is_reference: bool,
    /// Whether the provider looks up an item of this type whenever its content is missing.
    is_reasoning: bool,
    is_image: bool,
    /// Whether an item of this type never has content.
    is_trigger: bool,
    has_type: bool,
    has_role: bool,
    /// Whether the item has a member other than those that every item can have.
    has_more: bool,
    /// The kinds of content that the item itself contains, one bit for each kind (see [`CONTENT`] and the constants after it). A
    /// bit is set in `came` if the item has a member for this kind of content, and in `came_twice` if it has more than one such
    /// member.
    own: u8,
    came: u8,
    came_twice: u8,
}

/// The length of the longest known type of an item, in bytes.
const TYPE_BYTES_MAX: usize = 21;

const CONTENT: u8 = 1;
const ENCRYPTED_CONTENT: u8 = 2;
const RESULT: u8 = 4;
const SUMMARY: u8 = 8;

impl InputItem {
    /// Handles the name of a member of the item.
    pub(super) fn on_member(&mut self, key: Option<BodyKey>) {
        self.has_more |= !matches!(key, Some(BodyKey::Id | BodyKey::Type | BodyKey::Role | BodyKey::Status));
        let came = match key {
            Some(BodyKey::Content) => CONTENT,
            Some(BodyKey::EncryptedContent) => ENCRYPTED_CONTENT,
            Some(BodyKey::Result) => RESULT,
            Some(BodyKey::Summary) => SUMMARY,
            _ => return,
        };
        self.came_twice |= self.came & came;
        self.came |= came;
    }

    /// Handles a string at a position in the item.
    pub(super) fn on_string(&mut self, place: BodyPosition, text: &[u8], value: JsonToken) {
        let token = value.bytes_in(text);
        if string::string_inner(token).is_empty() {
            return;
        }
        match place {
            BodyPosition::ItemId => match self.id {
                None => self.id = Some(value),
                Some(_) => self.further_ids.push(value),
            },
            BodyPosition::ItemType => {
                self.has_type = true;
                match string::ascii_text(token, &mut [0; TYPE_BYTES_MAX]) {
                    Some(b"item_reference") => self.is_reference = true,
                    Some(b"reasoning" | b"compaction") => self.is_reasoning = true,
                    Some(b"image_generation_call") => self.is_image = true,
                    Some(b"compaction_trigger") => self.is_trigger = true,
                    _ => {}
                }
            }
            BodyPosition::ItemRole => self.has_role = true,
            BodyPosition::ItemContent | BodyPosition::OwnText => self.own |= CONTENT,
            BodyPosition::OwnEncryptedContent => self.own |= ENCRYPTED_CONTENT,
            BodyPosition::OwnResult => self.own |= RESULT,
            BodyPosition::OwnSummary => self.own |= SUMMARY,
            _ => {}
        }
    }

    /// Returns the kind of state that the item's identifier names; `None` if the item has its own content.
    pub(super) fn named_state(&self) -> Option<StateKind> {
        let has = |any_of: u8| self.own & !self.came_twice & any_of != 0;
        let lacks_reasoning = self.is_reasoning && !has(CONTENT | ENCRYPTED_CONTENT);
        let lacks_image = self.is_image && !has(RESULT);
        // An item without a type is a message if it has a role.
        let is_bare = !self.has_type && !self.has_role || !self.has_more && !self.is_trigger;
        match () {
            () if self.is_reference || lacks_image || is_bare => Some(StateKind::Item),
            () if lacks_reasoning && has(SUMMARY) => Some(StateKind::SummarizedItem),
            () if lacks_reasoning => Some(StateKind::Item),
            () => None,
        }
    }

    /// Returns the item's identifiers; several if the member `id` is repeated.
    pub(super) fn ids(&self) -> impl Iterator<Item = JsonToken> {
        self.id.into_iter().chain(self.further_ids.iter().copied())
    }
}

/// The maximum number of different model names that are recorded for one body.
const NAMED_MODELS_MAX: usize = 16;

/// The models that a request names in addition to the requested one: its fallbacks, its advisers, and the models that its tools
/// run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamedModels {
    /// One entry for each spelling of a name; at most [`NAMED_MODELS_MAX`].
    models: Vec<NamedModelSpan>,
    has_more: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct NamedModelSpan {
    /// The position of the name in the body, including both quotes.
    span: Range<usize>,
    is_fallback: bool,
}

impl NamedModels {
    /// Records a string of the body that is a model's name. `is_fallback` is true if the model answers when the requested one
    /// declines.
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

    /// Whether the request names no model in addition to the requested one.
    pub fn is_empty(&self) -> bool {
        self.models.is_empty()
    }

    /// Whether the request names more models than are recorded.
    pub fn has_more(&self) -> bool {
        self.has_more
    }

    /// Returns each name with its escapes resolved, and whether the model is a fallback for the requested one. `body` must be the
    /// body that was scanned. A name that is not valid text is empty.
    pub fn names<'b>(&self, body: &'b [u8]) -> impl Iterator<Item = (Cow<'b, str>, bool)> {
        let name = |model: &NamedModelSpan| string::unescaped(body.get(model.span.clone()).unwrap_or_default());
        let named = self.models.iter();
        named.map(move |model| (name(model).unwrap_or_default(), model.is_fallback))
    }
}
