//! Finds where a request names state at a provider (see [`crate::domain::wire::provider_state`]).
//!
//! Most names are recognised by their key at any place, except in the user's own data: the input of a tool, a schema,
//! metadata. An input item of the Responses protocol is judged at its end, because only the whole item tells whether it
//! has content of its own.

use std::{borrow::Cow, ops::Range};

use super::key::Key;
use super::lexer::Token;
use super::string;
use crate::domain::wire::provider_state::{StateId, StateKind, is_in_own_store};

/// Names of state in one request; a body with more is refused.
pub(crate) const REFERENCES_MAX: usize = 1024;

/// The depth of the members of an input item: the body's object, the array, the item.
const ITEM_DEPTH: usize = 3;
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

/// What the next value is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Next {
    #[default]
    Other,
    Name(StateKind),
    Item(ItemMember),
}

/// The members of an input item that tell whether it names another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ItemMember {
    Id,
    Type,
    Content,
}

/// An input item that has not ended. A member that comes twice is taken in whichever way makes the item a name.
#[derive(Debug, Default)]
struct Item {
    ids: Vec<Reference>,
    is_reference: bool,
    has_type: bool,
    has_role: bool,
    /// Of a type that is looked up by its identifier where its content is missing.
    may_be_empty: bool,
    has_content: bool,
    lacks_content: bool,
}

/// The names found so far. Told of every key, value and container in order.
#[derive(Debug, Default)]
pub(super) struct References {
    found: Vec<Reference>,
    next: Next,
    /// Strings directly in an array at this depth are names.
    elements: Option<(StateKind, usize)>,
    /// Keys deeper than this are the user's own.
    data_below: Option<usize>,
    /// Whether objects at [`ITEM_DEPTH`] are input items.
    in_input: bool,
    item: Option<Item>,
}

impl References {
    pub(super) fn into_found(mut self) -> Vec<Reference> {
        self.end_item();
        self.found
    }

    /// Whether there are more names than a request may have.
    pub(super) fn is_too_many(&self) -> bool {
        let in_item = self.item.as_ref().map_or(0, |item| item.ids.len());
        self.found.len() + in_item > REFERENCES_MAX
    }

    /// A key of an object at `depth` (1: the top level), below the member `top` of the top level.
    pub(super) fn key(&mut self, depth: usize, key: Option<Key>, top: Option<Key>) {
        self.next = Next::Other;
        self.elements = None;
        if self.data_below.is_some_and(|data| depth > data) {
            return;
        }
        self.data_below = None;
        if depth == 1 {
            self.end_item();
        }
        if depth < ITEM_DEPTH {
            // At a depth of 2 it is an object, so it has no items.
            self.in_input = depth == 1 && key == Some(Key::Input);
        }
        let Some(key) = key else { return };
        if depth == ITEM_DEPTH && self.in_input && self.item_key(key) {
            return;
        }
        if key == Key::Data || key == Key::Input && depth > 1 {
            // `input` is a tool's but at the top level.
            self.data_below = Some(depth);
        } else if let Some(kind) = named(key, depth, top) {
            self.next = Next::Name(kind);
            self.elements = Some((kind, depth + 1));
        }
    }

    /// Notes a member of an input item; false if it is none that tells of a name.
    fn item_key(&mut self, key: Key) -> bool {
        let member = match key {
            Key::Id => ItemMember::Id,
            Key::Type => ItemMember::Type,
            Key::EncryptedContent | Key::Result => ItemMember::Content,
            Key::Role => {
                self.item.get_or_insert_default().has_role = true;
                return true;
            }
            _ => return false,
        };
        self.next = Next::Item(member);
        true
    }

    /// A string, `depth` containers deep.
    pub(super) fn string(&mut self, depth: usize, text: &[u8], value: Token) {
        match std::mem::take(&mut self.next) {
            Next::Name(kind) => {
                self.elements = None;
                self.name(kind, text, value);
            }
            Next::Item(member) => self.item_string(member, text, value),
            Next::Other => {
                if let Some((kind, _)) = self.elements.filter(|(_, at)| *at == depth) {
                    self.name(kind, text, value);
                }
            }
        }
    }

    /// A value that is no string: a number, a literal, or a container that opens.
    pub(super) fn other(&mut self) {
        if std::mem::take(&mut self.next) == Next::Item(ItemMember::Content) {
            self.item.get_or_insert_default().lacks_content = true;
        }
    }

    /// An object has opened, the container number `depth`.
    pub(super) fn object(&mut self, depth: usize) {
        self.elements = None;
        if depth == ITEM_DEPTH && self.in_input {
            self.end_item();
            self.item = Some(Item::default());
        }
    }

    fn name(&mut self, kind: StateKind, text: &[u8], value: Token) {
        let name = string::unescaped(value.of(text)).unwrap_or_default();
        let is_name = match kind {
            StateKind::FileUri => is_in_own_store(&name),
            StateKind::Skill => name.starts_with(OWN_SKILL),
            _ => !name.is_empty(),
        };
        if is_name {
            self.found.push(reference(kind, &name, value));
        }
    }

    fn item_string(&mut self, member: ItemMember, text: &[u8], value: Token) {
        let item = self.item.get_or_insert_default();
        let token = value.of(text);
        let is_empty = string::inner(token).is_empty();
        match member {
            ItemMember::Id if is_empty => {}
            ItemMember::Id => {
                let id = string::unescaped(token).unwrap_or_default();
                item.ids.push(reference(StateKind::Item, &id, value));
            }
            ItemMember::Type => {
                let is = |name| string::is(token, name);
                item.has_type = true;
                item.is_reference |= is("item_reference");
                item.may_be_empty |= is("reasoning") || is("image_generation_call");
            }
            ItemMember::Content if is_empty => item.lacks_content = true,
            ItemMember::Content => item.has_content = true,
        }
    }

    fn end_item(&mut self) {
        let Some(item) = self.item.take() else { return };
        let is_empty = item.may_be_empty && (!item.has_content || item.lacks_content);
        // Without a type an item is a message if it has a role, and else a reference.
        if item.is_reference || is_empty || !item.has_type && !item.has_role {
            self.found.extend(item.ids);
        }
    }
}

fn reference(kind: StateKind, id: &str, value: Token) -> Reference {
    Reference {
        kind,
        id: StateId::new(id),
        at: value.start..value.end,
    }
}

/// What a string under this key names, at `depth` and below the member `top` of the top level.
fn named(key: Key, depth: usize, top: Option<Key>) -> Option<StateKind> {
    let below = top.filter(|_| depth == 2);
    match (key, depth, below) {
        (Key::FileId, 2.., _) => Some(StateKind::File),
        (Key::FileUri, 2.., _) => Some(StateKind::FileUri),
        (Key::VectorStoreIds, 2.., _) => Some(StateKind::VectorStore),
        (Key::FileSearchStoreNames, 2.., _) => Some(StateKind::FileSearchStore),
        (Key::SkillId, 2.., _) => Some(StateKind::Skill),
        (Key::Container | Key::ContainerId, ..) => Some(StateKind::Container),
        (Key::PreviousResponseId, 1, _) => Some(StateKind::Response),
        (Key::Conversation, 1, _) => Some(StateKind::Conversation),
        (Key::CachedContent, 1, _) => Some(StateKind::CachedContent),
        (Key::CachedContent, _, Some(Key::GenerateContentRequest)) => Some(StateKind::CachedContent),
        (Key::Id, _, Some(Key::Container)) => Some(StateKind::Container),
        (Key::Id, _, Some(Key::Conversation)) => Some(StateKind::Conversation),
        (Key::Id, _, Some(Key::Prompt)) => Some(StateKind::Prompt),
        (Key::PreviousMessageId, _, Some(Key::Thread)) => Some(StateKind::Thread),
        (Key::PreviousMessageId, _, Some(Key::Diagnostics)) => Some(StateKind::ComparedMessage),
        (Key::ComparisonResponseId, _, Some(Key::PromptCacheOptions)) => Some(StateKind::ComparedResponse),
        _ => None,
    }
}
