//! Where a request may name state at a provider: the places of each protocol's body, and which member leads from one to
//! another.
//!
//! The places are those of the vendors' published types; `tests/sdk/state_places.py` walks these and holds the table against
//! them. A provider refuses members that it does not know, so none of them leads anywhere, except in content: a block in a
//! block that is not known yet is searched like the one around it. Arrays have no place of their own, because a provider may
//! take one element without its array.

use super::key::Key;
use crate::domain::wire::Protocol;
use crate::domain::wire::provider_state::StateKind;

/// A place in a request's body, of one value or of each element of an array.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum BodyPosition {
    /// Nothing from here on names state.
    #[default]
    Elsewhere,
    /// A string here is an identifier of state.
    Name(StateKind),

    /// The body of a Messages request.
    Messages,
    /// `container` of Messages: an identifier, or an object that has one.
    Container,
    Thread,
    Diagnostics,
    /// Content blocks of Messages, and the messages around them.
    Blocks,

    /// The body of a Responses request.
    Responses,
    /// `conversation`: an identifier, or an object that has one.
    Conversation,
    Prompt,
    /// The variables of a prompt, by names of the user's own.
    Variables,
    /// An object that may have a file.
    FileHolder,
    CacheOptions,
    /// `store`.
    Store,
    /// `input`: a text, or items.
    Input,
    ItemId,
    ItemType,
    ItemRole,
    /// The content of an item: a text, or parts.
    ItemContent,
    ItemSummary,
    /// A string here is content of an item's own, so that it names nothing at the provider.
    OwnText,
    OwnEncryptedContent,
    OwnResult,
    OwnSummary,
    /// Anything else in an item, and all that nests in content.
    Parts,
    /// Tools of Responses.
    Tools,
    /// `container` of a tool: an identifier, or as [`Self::Environment`].
    ToolContainer,
    /// Where a tool runs, and the skills that it has there.
    Environment,

    /// The body of a Gemini-style request.
    Gemini,
    /// Contents, their parts, and all that nests in them.
    GeminiParts,
    GeminiTools,
    FileSearch,
}

impl BodyPosition {
    /// The place of a whole body.
    pub(super) const fn of_body(protocol: Protocol) -> Self {
        match protocol {
            Protocol::Messages => Self::Messages,
            Protocol::Responses => Self::Responses,
            Protocol::Gemini => Self::Gemini,
        }
    }

    /// What a string here is the identifier of.
    pub(super) const fn names(self) -> Option<StateKind> {
        match self {
            Self::Name(kind) => Some(kind),
            Self::Container | Self::ToolContainer => Some(StateKind::Container),
            Self::Conversation => Some(StateKind::Conversation),
            _ => None,
        }
    }

    /// Whether weir goes by the string that stands here.
    pub(super) const fn is_read(self) -> bool {
        self.names().is_some() || matches!(self, Self::ItemId | Self::ItemType | Self::ItemRole)
    }

    /// The place of a member of an object here.
    pub(super) const fn member(self, key: Option<Key>) -> Self {
        let Some(key) = key else { return self.unknown_member() };
        match self {
            Self::Elsewhere => Self::Elsewhere,
            Self::Messages | Self::Container | Self::Thread | Self::Diagnostics | Self::Blocks => {
                self.messages_member(key)
            }
            Self::Gemini | Self::GeminiParts | Self::GeminiTools | Self::FileSearch => self.gemini_member(key),
            Self::Input | Self::ItemContent | Self::ItemSummary | Self::Parts => self.item_member(key),
            _ => self.responses_member(key),
        }
    }

    /// Where a member leads that the table does not have.
    const fn unknown_member(self) -> Self {
        match self {
            Self::Blocks | Self::Parts | Self::GeminiParts => self,
            Self::Input | Self::ItemContent => Self::Parts,
            Self::Variables => Self::FileHolder,
            _ => Self::Elsewhere,
        }
    }

    const fn messages_member(self, key: Key) -> Self {
        match (self, key) {
            (Self::Messages, Key::Messages | Key::System) => Self::Blocks,
            (Self::Messages, Key::Container) => Self::Container,
            (Self::Messages, Key::Thread) => Self::Thread,
            (Self::Messages, Key::Diagnostics) => Self::Diagnostics,
            (Self::Container, Key::Id) => Self::Name(StateKind::Container),
            // Of the skills in it.
            (Self::Container, Key::Skills) => Self::Container,
            (Self::Container, Key::SkillId) => Self::Name(StateKind::Skill),
            (Self::Thread, Key::PreviousMessageId) => Self::Name(StateKind::Thread),
            (Self::Diagnostics, Key::PreviousMessageId) => Self::Name(StateKind::ComparedMessage),
            (Self::Blocks, Key::FileId) => Self::Name(StateKind::File),
            (Self::Blocks, Key::Data | Key::Input | Key::Tools) => Self::Elsewhere,
            _ => self.unknown_member(),
        }
    }

    const fn responses_member(self, key: Key) -> Self {
        match (self, key) {
            (Self::Responses, Key::Input) => Self::Input,
            (Self::Responses | Self::Tools, Key::Tools) => Self::Tools,
            (Self::Responses, Key::PreviousResponseId) => Self::Name(StateKind::Response),
            (Self::Responses, Key::Conversation) => Self::Conversation,
            (Self::Responses, Key::Prompt) => Self::Prompt,
            (Self::Responses, Key::PromptCacheOptions) => Self::CacheOptions,
            (Self::Responses, Key::Store) => Self::Store,
            (Self::Conversation, Key::Id) => Self::Name(StateKind::Conversation),
            (Self::Prompt, Key::Id) => Self::Name(StateKind::Prompt),
            (Self::Prompt, Key::Variables) => Self::Variables,
            (Self::CacheOptions, Key::ComparisonResponseId) => Self::Name(StateKind::ComparedResponse),
            (Self::Tools, Key::Container) => Self::ToolContainer,
            (Self::Tools, Key::Environment | Key::Skills) => Self::Environment,
            (Self::Tools, Key::VectorStoreIds) => Self::Name(StateKind::VectorStore),
            (Self::Tools, Key::TunnelId) => Self::Name(StateKind::Tunnel),
            (Self::Tools, Key::InputImageMask) => Self::FileHolder,
            (Self::ToolContainer | Self::Environment, Key::Skills) => Self::Environment,
            (Self::ToolContainer | Self::Environment, Key::Id | Key::ContainerId) => Self::Name(StateKind::Container),
            (Self::ToolContainer | Self::Environment | Self::Tools, Key::SkillId) => Self::Name(StateKind::Skill),
            (Self::ToolContainer | Self::Environment | Self::Tools | Self::FileHolder, Key::FileId) => {
                Self::Name(StateKind::File)
            }
            _ => self.unknown_member(),
        }
    }

    /// Of an item in `input` of Responses, or below one.
    const fn item_member(self, key: Key) -> Self {
        match (self, key) {
            (Self::Input, Key::Id) => Self::ItemId,
            (Self::Input, Key::Type) => Self::ItemType,
            (Self::Input, Key::Role) => Self::ItemRole,
            (Self::Input, Key::Content) => Self::ItemContent,
            (Self::Input, Key::Summary) => Self::ItemSummary,
            (Self::Input, Key::EncryptedContent) => Self::OwnEncryptedContent,
            (Self::Input, Key::Result) => Self::OwnResult,
            (Self::Input, Key::Environment) => Self::Environment,
            (Self::ItemContent, Key::Text) => Self::OwnText,
            (Self::ItemSummary, Key::Text) => Self::OwnSummary,
            (Self::ItemSummary, _) => Self::Elsewhere,
            (_, Key::FileId) => Self::Name(StateKind::File),
            (_, Key::ContainerId) => Self::Name(StateKind::Container),
            (_, Key::Tools) => Self::Tools,
            (_, Key::Data | Key::Input) => Self::Elsewhere,
            _ => self.unknown_member(),
        }
    }

    const fn gemini_member(self, key: Key) -> Self {
        match (self, key) {
            (Self::Gemini, Key::Contents | Key::SystemInstruction) => Self::GeminiParts,
            (Self::Gemini, Key::CachedContent) => Self::Name(StateKind::CachedContent),
            (Self::Gemini, Key::Tools) => Self::GeminiTools,
            // The request whose tokens are counted.
            (Self::Gemini, Key::GenerateContentRequest) => Self::Gemini,
            (Self::GeminiParts, Key::FileUri) => Self::Name(StateKind::FileUri),
            (Self::GeminiParts, Key::Data) => Self::Elsewhere,
            (Self::GeminiTools, Key::FileSearch) => Self::FileSearch,
            (Self::FileSearch, Key::FileSearchStoreNames) => Self::Name(StateKind::FileSearchStore),
            _ => self.unknown_member(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_one_byte() {
        assert_eq!(
            size_of::<Option<BodyPosition>>(),
            1,
            "one of them is kept for each level of a body"
        );
    }
}
