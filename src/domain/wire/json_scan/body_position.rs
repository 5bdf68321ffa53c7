//! Where a request may name state at a provider, or a model beside the one that is to answer: the places of each protocol's
//! body, and which member leads from one to another.
//!
//! The places are those of the vendors' published types; `tests/sdk/state_places.py` walks these and holds the table against
//! them. A provider refuses members that it does not know, so none of them leads to state, except in content: a block in a
//! block that is not known yet is searched like the one around it. A member whose name says that it is a model names one
//! wherever it stands, but in the user's own data and in what tells of models that were run. Arrays have no place of their own,
//! because a provider may take one element without its array.

use super::key::Key;
use crate::domain::wire::Protocol;
use crate::domain::wire::provider_state::StateKind;

/// A place in a request's body, of one value or of each element of an array.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum BodyPosition {
    /// Nothing from here on names state; a model may be named.
    #[default]
    Elsewhere,
    /// Nothing from here on names anything: the user's own data, or what has been.
    Own,
    /// A string here, or in what is here, names a model.
    Model,
    /// The models that take the place of one that declines: a string here has the provider choose them.
    Fallbacks,
    /// [`Self::Model`] of one of them.
    FallbackModel,
    /// [`Self::Model`] in content, where state is looked for all the same.
    BlockModel,
    PartModel,
    GeminiPartModel,
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

    /// Whether a string here names a model.
    pub(super) const fn names_model(self) -> bool {
        matches!(
            self,
            Self::Model
                | Self::Fallbacks
                | Self::FallbackModel
                | Self::BlockModel
                | Self::PartModel
                | Self::GeminiPartModel
        )
    }

    /// Whether weir goes by the string that stands here.
    pub(super) const fn is_read(self) -> bool {
        self.names().is_some() || matches!(self, Self::ItemId | Self::ItemType | Self::ItemRole)
    }

    /// The place of a member of an object here.
    pub(super) const fn member(self, key: Option<Key>) -> Self {
        let here = self.without_model();
        let Some(key) = key else { return here.unknown_member() };
        match (here, key) {
            (Self::Own, _) | (Self::Messages | Self::Responses, Key::Model) => Self::Own,
            (Self::Model | Self::FallbackModel, _) => here,
            (Self::Variables, _) => Self::FileHolder,
            (_, Key::Model | Key::OtherModel) => here.model_member(),
            (_, Key::Data) => Self::Own,
            _ => here.known_member(key),
        }
    }

    const fn known_member(self, key: Key) -> Self {
        match self {
            Self::Messages | Self::Container | Self::Thread | Self::Diagnostics | Self::Blocks => {
                self.messages_member(key)
            }
            Self::Gemini | Self::GeminiParts | Self::GeminiTools | Self::FileSearch => self.gemini_member(key),
            Self::Input | Self::ItemContent | Self::ItemSummary | Self::Parts => self.item_member(key),
            Self::Elsewhere | Self::Fallbacks => self.other_member(key),
            _ => self.responses_member(key),
        }
    }

    /// Where a member leads whose name says that it is a model.
    const fn model_member(self) -> Self {
        match self {
            Self::Blocks => Self::BlockModel,
            Self::Input | Self::ItemContent | Self::Parts => Self::PartModel,
            Self::GeminiParts => Self::GeminiPartModel,
            Self::Fallbacks => Self::FallbackModel,
            _ => Self::Model,
        }
    }

    /// The content that a model is named in, for what else stands there.
    const fn without_model(self) -> Self {
        match self {
            Self::BlockModel => Self::Blocks,
            Self::PartModel => Self::Parts,
            Self::GeminiPartModel => Self::GeminiParts,
            other => other,
        }
    }

    /// Where a known member leads that the table does not have here.
    const fn other_member(self, key: Key) -> Self {
        match (self.unknown_member(), key) {
            (Self::Elsewhere, Key::OwnMap) => Self::Own,
            (place, _) => place,
        }
    }

    /// Where a member leads that the table does not have.
    const fn unknown_member(self) -> Self {
        match self {
            Self::Own | Self::Model | Self::FallbackModel | Self::Blocks | Self::Parts | Self::GeminiParts => self,
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
            (Self::Messages, Key::Fallbacks) => Self::Fallbacks,
            (Self::Container, Key::Id) => Self::Name(StateKind::Container),
            // Of the skills in it.
            (Self::Container, Key::Skills) => Self::Container,
            (Self::Container, Key::SkillId) => Self::Name(StateKind::Skill),
            (Self::Thread, Key::PreviousMessageId) => Self::Name(StateKind::Thread),
            (Self::Diagnostics, Key::PreviousMessageId) => Self::Name(StateKind::ComparedMessage),
            (Self::Blocks, Key::FileId) => Self::Name(StateKind::File),
            (Self::Blocks, Key::Input | Key::Hop) => Self::Own,
            // Definitions of tools.
            (Self::Blocks, Key::Tools | Key::ToolDefinition) => Self::Elsewhere,
            _ => self.other_member(key),
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
            _ => self.other_member(key),
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
            (_, Key::ToolDefinition) => Self::Elsewhere,
            // What was used for a picture that the client sends back.
            (_, Key::Input | Key::SvgUsage) => Self::Own,
            _ => self.other_member(key),
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
            (Self::GeminiParts, Key::ToolDefinition) => Self::Elsewhere,
            (Self::GeminiTools, Key::FileSearch) => Self::FileSearch,
            (Self::FileSearch, Key::FileSearchStoreNames) => Self::Name(StateKind::FileSearchStore),
            _ => self.other_member(key),
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
