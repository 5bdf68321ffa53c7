//! An input item of the Responses protocol: whether it names another, which the provider looks up by its identifier, or has
//! content of its own. Only the whole item tells.

use super::body_position::BodyPosition;
use super::key::Key;
use super::lexer::Token;
use super::string;
use crate::domain::wire::provider_state::StateKind;

/// An item that has not ended. A member that comes twice is taken in whichever way makes the item a name.
#[derive(Debug, Default)]
pub(super) struct Item {
    id: Option<Token>,
    /// What else stands under the same name.
    further_ids: Vec<Token>,
    is_reference: bool,
    /// A type that is looked up where it lacks its content, whatever else it has.
    is_reasoning: bool,
    is_image: bool,
    /// A type that never has content.
    is_trigger: bool,
    has_type: bool,
    has_role: bool,
    /// A member beside those that every item may have.
    has_more: bool,
    /// What it has of its own, and which of these members came, and came twice: a bit each, as below.
    own: u8,
    came: u8,
    came_twice: u8,
}

/// The longest type that is looked for, in bytes.
const TYPE_BYTES_MAX: usize = 21;

const CONTENT: u8 = 1;
const ENCRYPTED_CONTENT: u8 = 2;
const RESULT: u8 = 4;
const SUMMARY: u8 = 8;

impl Item {
    /// A member's name.
    pub(super) fn member(&mut self, key: Option<Key>) {
        self.has_more |= !matches!(key, Some(Key::Id | Key::Type | Key::Role | Key::Status));
        let came = match key {
            Some(Key::Content) => CONTENT,
            Some(Key::EncryptedContent) => ENCRYPTED_CONTENT,
            Some(Key::Result) => RESULT,
            Some(Key::Summary) => SUMMARY,
            _ => return,
        };
        self.came_twice |= self.came & came;
        self.came |= came;
    }

    /// A string at a place in it.
    pub(super) fn string(&mut self, place: BodyPosition, text: &[u8], value: Token) {
        let token = value.of(text);
        if string::inner(token).is_empty() {
            return;
        }
        match place {
            BodyPosition::ItemId => match self.id {
                None => self.id = Some(value),
                Some(_) => self.further_ids.push(value),
            },
            BodyPosition::ItemType => {
                self.has_type = true;
                match string::ascii(token, &mut [0; TYPE_BYTES_MAX]) {
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

    /// What its identifier names; `None` if the item is content.
    pub(super) fn names(&self) -> Option<StateKind> {
        let has = |any_of: u8| self.own & !self.came_twice & any_of != 0;
        let lacks_reasoning = self.is_reasoning && !has(CONTENT | ENCRYPTED_CONTENT);
        let lacks_image = self.is_image && !has(RESULT);
        // Without a type an item is a message if it has a role.
        let is_bare = !self.has_type && !self.has_role || !self.has_more && !self.is_trigger;
        match () {
            () if self.is_reference || lacks_image || is_bare => Some(StateKind::Item),
            () if lacks_reasoning && has(SUMMARY) => Some(StateKind::SummarizedItem),
            () if lacks_reasoning => Some(StateKind::Item),
            () => None,
        }
    }

    /// Its identifiers; more than one if it has several members of that name.
    pub(super) fn ids(&self) -> impl Iterator<Item = Token> {
        self.id.into_iter().chain(self.further_ids.iter().copied())
    }
}
