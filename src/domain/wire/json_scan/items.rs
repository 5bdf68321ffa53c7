//! Determines whether an input item of the Responses protocol is a reference or has its own content. The provider looks up a
//! referenced item by its identifier. Only the end of the item shows which of both it is. This file also collects the models that
//! a request names.

use std::{borrow::Cow, ops::Range};

use crate::domain::wire::{
    json_scan::{
        body_position::BodyPosition,
        lexer::JsonToken,
        string::{self, BodyKey},
    },
    provider_state::StateKind,
};

/// An input item that is being read. A repeated member is interpreted in the way that makes the item a reference.
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
    /// The kinds of content that the item has itself, one bit for each (see [`CONTENT`] and the constants after it). `came` has
    /// the members that have occurred, and `came_twice` those that have occurred twice.
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

/// The maximum number of different model names that are recorded of one body.
const NAMED_MODELS_MAX: usize = 16;

/// The models that a request names in addition to the requested one: its fallbacks, advisers, and the models that its tools run.
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
