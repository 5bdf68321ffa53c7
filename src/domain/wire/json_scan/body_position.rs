//! The positions in a request body that can name state at a provider, or a model other than the requested one. A table for each
//! protocol contains the members that lead from one position to another.
//!
//! The positions are those of the vendors' published types: `tests/sdk/state_places.py` walks through these types and compares
//! them with the table. A provider refuses unknown members, so none of them leads to state. Content is an exception: an unknown
//! block within a block is searched like the block around it. A member with a name like `model` names a model at every position,
//! except in the user's own data and in reports of models that have run. Arrays have no position of their own, because a provider
//! may accept a single element instead of an array.

use crate::domain::wire::Protocol;
use crate::domain::wire::json_scan::string::BodyKey;
use crate::domain::wire::provider_state::StateKind;

/// The position of a value in a request body. For an array, the position of each of its elements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum BodyPosition {
    /// No value at or below this position names state, but a value can name a model.
    #[default]
    Elsewhere,
    /// No value at or below this position counts as the name of a model or of state, because the values here are the user's own
    /// data or a report of earlier work.
    Own,
    /// A string at this position, or in the value at this position, names a model.
    Model,
    /// The models that answer if the requested model declines. If the value is a string, the provider chooses them.
    Fallbacks,
    /// Like [`Self::Model`], for a model that answers if the requested one declines.
    FallbackModel,
    /// Like [`Self::Model`], but in content, which is also searched for names of state.
    BlockModel,
    PartModel,
    GeminiPartModel,
    /// A string at this position is the identifier of this kind of state.
    Name(StateKind),

    /// The body of a Messages request.
    Messages,
    /// `container` of a Messages request: an identifier, or an object that contains one.
    Container,
    Thread,
    Diagnostics,
    /// The content blocks of a Messages request, and the messages around them.
    Blocks,

    /// The body of a Responses request.
    Responses,
    /// `conversation` of a Responses request: an identifier, or an object that contains one.
    Conversation,
    Prompt,
    /// The variables of a prompt, whose names the user chose.
    Variables,
    /// An object that can contain a file's identifier.
    FileHolder,
    CacheOptions,
    /// `store` of a Responses request.
    Store,
    /// `input` of a Responses request: a string, or items.
    Input,
    ItemId,
    ItemType,
    ItemRole,
    /// The content of an input item: a string, or parts.
    ItemContent,
    ItemSummary,
    /// A string at this position is the item's own content, so the item does not have to exist at the provider.
    OwnText,
    OwnEncryptedContent,
    OwnResult,
    OwnSummary,
    /// The members of an input item that have no position of their own, and everything nested in content.
    Parts,
    /// The tools of a Responses request.
    Tools,
    /// `container` of a tool: an identifier, or an object like [`Self::Environment`].
    ToolContainer,
    /// The environment in which a tool runs, with its skills.
    Environment,

    /// The body of a Gemini-style request.
    Gemini,
    /// The contents of a Gemini-style request, their parts, and everything nested in them.
    GeminiParts,
    GeminiTools,
    FileSearch,
}

impl BodyPosition {
    /// Returns the position of a request body in this protocol.
    pub(super) const fn of_body(protocol: Protocol) -> Self {
        match protocol {
            Protocol::Messages => Self::Messages,
            Protocol::Responses => Self::Responses,
            Protocol::Gemini => Self::Gemini,
        }
    }

    /// Returns the kind of state that a string at this position identifies; `None` if it identifies none.
    pub(super) const fn named_state(self) -> Option<StateKind> {
        match self {
            Self::Name(kind) => Some(kind),
            Self::Container | Self::ToolContainer => Some(StateKind::Container),
            Self::Conversation => Some(StateKind::Conversation),
            _ => None,
        }
    }

    /// Whether a string at this position names a model.
    pub(super) const fn is_model_name(self) -> bool {
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

    /// Whether weir reads a string at this position.
    pub(super) const fn is_string_read(self) -> bool {
        self.named_state().is_some() || matches!(self, Self::ItemId | Self::ItemType | Self::ItemRole)
    }

    /// Returns the position of the member `key` of an object at this position. `None` means an unknown key.
    pub(super) const fn member(self, key: Option<BodyKey>) -> Self {
        let here = self.without_model();
        let Some(key) = key else { return here.unknown_member() };
        match (here, key) {
            (Self::Own, _) | (Self::Messages | Self::Responses, BodyKey::Model) => Self::Own,
            (Self::Model | Self::FallbackModel, _) => here,
            (Self::Variables, _) => Self::FileHolder,
            (_, BodyKey::Model | BodyKey::OtherModel) => here.model_member(),
            (_, BodyKey::Data) => Self::Own,
            _ => here.known_member(key),
        }
    }

    const fn known_member(self, key: BodyKey) -> Self {
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

    /// Returns the position of a member whose key denotes a model ([`BodyKey::Model`] or [`BodyKey::OtherModel`]).
    const fn model_member(self) -> Self {
        match self {
            Self::Blocks => Self::BlockModel,
            Self::Input | Self::ItemContent | Self::Parts => Self::PartModel,
            Self::GeminiParts => Self::GeminiPartModel,
            Self::Fallbacks => Self::FallbackModel,
            _ => Self::Model,
        }
    }

    /// Returns the position at which the table lists the members of a value at this position. If a value in content is expected
    /// to be a model's name but is an object, its members are searched like those of the surrounding content. Any other position
    /// is returned unchanged.
    const fn without_model(self) -> Self {
        match self {
            Self::BlockModel => Self::Blocks,
            Self::PartModel => Self::Parts,
            Self::GeminiPartModel => Self::GeminiParts,
            other => other,
        }
    }

    /// Returns the position of a member whose key is known, but is not in the table for this position.
    const fn other_member(self, key: BodyKey) -> Self {
        match (self.unknown_member(), key) {
            (Self::Elsewhere, BodyKey::OwnMap) => Self::Own,
            (place, _) => place,
        }
    }

    /// Returns the position of a member that is not in the table for this position.
    const fn unknown_member(self) -> Self {
        match self {
            Self::Own | Self::Model | Self::FallbackModel | Self::Blocks | Self::Parts | Self::GeminiParts => self,
            Self::Input | Self::ItemContent => Self::Parts,
            Self::Variables => Self::FileHolder,
            _ => Self::Elsewhere,
        }
    }

    const fn messages_member(self, key: BodyKey) -> Self {
        match (self, key) {
            (Self::Messages, BodyKey::Messages | BodyKey::System) => Self::Blocks,
            (Self::Messages, BodyKey::Container) => Self::Container,
            (Self::Messages, BodyKey::Thread) => Self::Thread,
            (Self::Messages, BodyKey::Diagnostics) => Self::Diagnostics,
            (Self::Messages, BodyKey::Fallbacks) => Self::Fallbacks,
            (Self::Container, BodyKey::Id) => Self::Name(StateKind::Container),
            // An object for a container can also contain the skills of the container.
            (Self::Container, BodyKey::Skills) => Self::Container,
            (Self::Container, BodyKey::SkillId) => Self::Name(StateKind::Skill),
            (Self::Thread, BodyKey::PreviousMessageId) => Self::Name(StateKind::Thread),
            (Self::Diagnostics, BodyKey::PreviousMessageId) => Self::Name(StateKind::ComparedMessage),
            (Self::Blocks, BodyKey::FileId) => Self::Name(StateKind::File),
            (Self::Blocks, BodyKey::Input | BodyKey::Hop) => Self::Own,
            // These members contain definitions of tools.
            (Self::Blocks, BodyKey::Tools | BodyKey::ToolDefinition) => Self::Elsewhere,
            _ => self.other_member(key),
        }
    }

    const fn responses_member(self, key: BodyKey) -> Self {
        match (self, key) {
            (Self::Responses, BodyKey::Input) => Self::Input,
            (Self::Responses | Self::Tools, BodyKey::Tools) => Self::Tools,
            (Self::Responses, BodyKey::PreviousResponseId) => Self::Name(StateKind::Response),
            (Self::Responses, BodyKey::Conversation) => Self::Conversation,
            (Self::Responses, BodyKey::Prompt) => Self::Prompt,
            (Self::Responses, BodyKey::PromptCacheOptions) => Self::CacheOptions,
            (Self::Responses, BodyKey::Store) => Self::Store,
            (Self::Conversation, BodyKey::Id) => Self::Name(StateKind::Conversation),
            (Self::Prompt, BodyKey::Id) => Self::Name(StateKind::Prompt),
            (Self::Prompt, BodyKey::Variables) => Self::Variables,
            (Self::CacheOptions, BodyKey::ComparisonResponseId) => Self::Name(StateKind::ComparedResponse),
            (Self::Tools, BodyKey::Container) => Self::ToolContainer,
            (Self::Tools, BodyKey::Environment | BodyKey::Skills) => Self::Environment,
            (Self::Tools, BodyKey::VectorStoreIds) => Self::Name(StateKind::VectorStore),
            (Self::Tools, BodyKey::TunnelId) => Self::Name(StateKind::Tunnel),
            (Self::Tools, BodyKey::InputImageMask) => Self::FileHolder,
            (Self::ToolContainer | Self::Environment, BodyKey::Skills) => Self::Environment,
            (Self::ToolContainer | Self::Environment, BodyKey::Id | BodyKey::ContainerId) => {
                Self::Name(StateKind::Container)
            }
            (Self::ToolContainer | Self::Environment | Self::Tools, BodyKey::SkillId) => Self::Name(StateKind::Skill),
            (Self::ToolContainer | Self::Environment | Self::Tools | Self::FileHolder, BodyKey::FileId) => {
                Self::Name(StateKind::File)
            }
            _ => self.other_member(key),
        }
    }

    /// Returns the position of a member of an item in `input` of a Responses request, or of a value in an item.
    const fn item_member(self, key: BodyKey) -> Self {
        match (self, key) {
            (Self::Input, BodyKey::Id) => Self::ItemId,
            (Self::Input, BodyKey::Type) => Self::ItemType,
            (Self::Input, BodyKey::Role) => Self::ItemRole,
            (Self::Input, BodyKey::Content) => Self::ItemContent,
            (Self::Input, BodyKey::Summary) => Self::ItemSummary,
            (Self::Input, BodyKey::EncryptedContent) => Self::OwnEncryptedContent,
            (Self::Input, BodyKey::Result) => Self::OwnResult,
            (Self::Input, BodyKey::Environment) => Self::Environment,
            (Self::ItemContent, BodyKey::Text) => Self::OwnText,
            (Self::ItemSummary, BodyKey::Text) => Self::OwnSummary,
            (Self::ItemSummary, _) => Self::Elsewhere,
            (_, BodyKey::FileId) => Self::Name(StateKind::File),
            (_, BodyKey::ContainerId) => Self::Name(StateKind::Container),
            (_, BodyKey::Tools) => Self::Tools,
            (_, BodyKey::ToolDefinition) => Self::Elsewhere,
            // `svg_usage` is the usage of an image that the client sends back.
            (_, BodyKey::Input | BodyKey::SvgUsage) => Self::Own,
            _ => self.other_member(key),
        }
    }

    const fn gemini_member(self, key: BodyKey) -> Self {
        match (self, key) {
            (Self::Gemini, BodyKey::Contents | BodyKey::SystemInstruction) => Self::GeminiParts,
            (Self::Gemini, BodyKey::CachedContent) => Self::Name(StateKind::CachedContent),
            (Self::Gemini, BodyKey::Tools) => Self::GeminiTools,
            // This is the request whose tokens are to be counted.
            (Self::Gemini, BodyKey::GenerateContentRequest) => Self::Gemini,
            (Self::GeminiParts, BodyKey::FileUri) => Self::Name(StateKind::FileUri),
            (Self::GeminiParts, BodyKey::ToolDefinition) => Self::Elsewhere,
            (Self::GeminiTools, BodyKey::FileSearch) => Self::FileSearch,
            (Self::FileSearch, BodyKey::FileSearchStoreNames) => Self::Name(StateKind::FileSearchStore),
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
