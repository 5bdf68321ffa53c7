//! Finds where a request names state at a provider (see [`crate::domain::provider_state`]).
//!
//! Most names are recognised by their key at any place, except in the user's own data: the input of a tool, a schema,
//! metadata. An input item of the Responses protocol is judged at its end, because only the whole item tells whether it
//! has content of its own.

use super::string::StringToken;
use crate::domain::provider_state::{Reference, StateId, StateKind, is_in_own_store};

/// Names of state in one request; a body with more is refused.
pub const REFERENCES_MAX: usize = 1024;

/// The depth of the members of an input item: the body's object, the array, the item.
const ITEM_DEPTH: usize = 3;
/// What the identifiers of an operator's own skills begin with; the others are everybody's.
const OWN_SKILL: &str = "skill_";

/// The member of the top level that the walk is in, as far as names stand below it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Below {
    #[default]
    Other,
    CacheOptions,
    Container,
    Conversation,
    Diagnostics,
    Input,
    Prompt,
    Thread,
    WrappedRequest,
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
    below: Below,
    next: Next,
    /// Strings directly in an array at this depth are names.
    elements: Option<(StateKind, usize)>,
    /// Keys deeper than this are the user's own.
    data_below: Option<usize>,
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

    /// A key of an object at `depth` (1: the top level).
    pub(super) fn key(&mut self, depth: usize, body: &str, key: &StringToken) {
        self.next = Next::Other;
        self.elements = None;
        if self.data_below.is_some_and(|data| depth > data) {
            return;
        }
        self.data_below = None;
        let name = Name::of(body, key);
        if depth == 1 {
            self.end_item();
            self.below = name.map_or(Below::Other, Name::below);
        }
        if depth < ITEM_DEPTH && depth > 1 && self.below == Below::Input {
            // It is an object, so it has no items.
            self.below = Below::Other;
        }
        if depth == ITEM_DEPTH && self.below == Below::Input && self.item_key(name) {
            return;
        }
        let Some(name) = name else { return };
        if name.is_data(depth) {
            self.data_below = Some(depth);
        } else if let Some(kind) = name.names(depth, self.below) {
            self.next = Next::Name(kind);
            self.elements = Some((kind, depth + 1));
        }
    }

    /// Notes a member of an input item; false if it is none that tells of a name.
    fn item_key(&mut self, name: Option<Name>) -> bool {
        let member = match name {
            Some(Name::Id) => ItemMember::Id,
            Some(Name::Type) => ItemMember::Type,
            Some(Name::EncryptedContent | Name::Result) => ItemMember::Content,
            Some(Name::Role) => {
                self.item.get_or_insert_default().has_role = true;
                return true;
            }
            _ => return false,
        };
        self.next = Next::Item(member);
        true
    }

    /// A string, `depth` containers deep.
    pub(super) fn string(&mut self, depth: usize, body: &str, value: &StringToken) {
        match std::mem::take(&mut self.next) {
            Next::Name(kind) => {
                self.elements = None;
                self.name(kind, body, value);
            }
            Next::Item(member) => self.item_string(member, body, value),
            Next::Other => {
                if let Some((kind, _)) = self.elements.filter(|(_, at)| *at == depth) {
                    self.name(kind, body, value);
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
        if depth == ITEM_DEPTH && self.below == Below::Input {
            self.end_item();
            self.item = Some(Item::default());
        }
    }

    fn name(&mut self, kind: StateKind, body: &str, value: &StringToken) {
        let token = value.is_escaped.then(|| value.decode(body));
        let text = token.as_deref().unwrap_or(value.raw(body));
        let is_name = match kind {
            StateKind::FileUri => is_in_own_store(text),
            StateKind::Skill => text.starts_with(OWN_SKILL),
            _ => !text.is_empty(),
        };
        if is_name {
            self.found.push(Reference {
                kind,
                id: StateId::new(text),
                at: value.span.clone(),
            });
        }
    }

    fn item_string(&mut self, member: ItemMember, body: &str, value: &StringToken) {
        let item = self.item.get_or_insert_default();
        match member {
            ItemMember::Id if value.raw(body).is_empty() => {}
            ItemMember::Id => item.ids.push(Reference {
                kind: StateKind::Item,
                id: StateId::new(&value.decode(body)),
                at: value.span.clone(),
            }),
            ItemMember::Type => {
                item.has_type = true;
                item.is_reference |= value.is(body, "item_reference");
                item.may_be_empty |= value.is(body, "reasoning") || value.is(body, "image_generation_call");
            }
            ItemMember::Content if value.raw(body).is_empty() => item.lacks_content = true,
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

/// The longest spelling of a [`Name`], in bytes.
const SPELLING_BYTES_MAX: usize = 24;

/// The keys that matter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Name {
    CacheOptions,
    CachedContent,
    ComparisonResponse,
    Container,
    ContainerId,
    Conversation,
    Data,
    Diagnostics,
    EncryptedContent,
    File,
    FileUri,
    FileSearchStores,
    Id,
    Input,
    PreviousMessage,
    PreviousResponse,
    Prompt,
    Result,
    Role,
    Skill,
    Thread,
    Type,
    VectorStores,
    WrappedRequest,
}

impl Name {
    /// The key's name; Gemini-style requests take both of their spellings.
    fn of(body: &str, key: &StringToken) -> Option<Self> {
        Some(match key.short(body, &mut [0; SPELLING_BYTES_MAX])? {
            "args"
            | "arguments"
            | "client_metadata"
            | "input_examples"
            | "input_schema"
            | "labels"
            | "metadata"
            | "parameters"
            | "parametersJsonSchema"
            | "parameters_json_schema"
            | "response"
            | "responseJsonSchema"
            | "responseSchema"
            | "response_json_schema"
            | "response_schema"
            | "schema" => Self::Data,
            "cachedContent" | "cached_content" => Self::CachedContent,
            "comparison_response_id" => Self::ComparisonResponse,
            "container" => Self::Container,
            "container_id" => Self::ContainerId,
            "conversation" => Self::Conversation,
            "diagnostics" => Self::Diagnostics,
            "encrypted_content" => Self::EncryptedContent,
            "fileSearchStoreNames" | "file_search_store_names" => Self::FileSearchStores,
            "fileUri" | "file_uri" => Self::FileUri,
            "file_id" | "file_ids" => Self::File,
            "generateContentRequest" | "generate_content_request" => Self::WrappedRequest,
            "id" => Self::Id,
            "input" => Self::Input,
            "previous_message_id" => Self::PreviousMessage,
            "previous_response_id" => Self::PreviousResponse,
            "prompt" => Self::Prompt,
            "prompt_cache_options" => Self::CacheOptions,
            "result" => Self::Result,
            "role" => Self::Role,
            "skill_id" => Self::Skill,
            "thread" => Self::Thread,
            "type" => Self::Type,
            "vector_store_ids" => Self::VectorStores,
            _ => return None,
        })
    }

    fn below(self) -> Below {
        match self {
            Self::CacheOptions => Below::CacheOptions,
            Self::Container => Below::Container,
            Self::Conversation => Below::Conversation,
            Self::Diagnostics => Below::Diagnostics,
            Self::Input => Below::Input,
            Self::Prompt => Below::Prompt,
            Self::Thread => Below::Thread,
            Self::WrappedRequest => Below::WrappedRequest,
            _ => Below::Other,
        }
    }

    /// Whether the value of this key at `depth` is the user's own. `input` is a tool's but at the top level.
    fn is_data(self, depth: usize) -> bool {
        self == Self::Data || self == Self::Input && depth > 1
    }

    /// What a string under this key names, at `depth` and below that member of the top level.
    fn names(self, depth: usize, below: Below) -> Option<StateKind> {
        let is_top = depth == 1;
        match (self, below) {
            (Self::File, _) if !is_top => Some(StateKind::File),
            (Self::FileUri, _) if !is_top => Some(StateKind::FileUri),
            (Self::VectorStores, _) if !is_top => Some(StateKind::VectorStore),
            (Self::FileSearchStores, _) if !is_top => Some(StateKind::FileSearchStore),
            (Self::Skill, _) if !is_top => Some(StateKind::Skill),
            (Self::Container | Self::ContainerId, _) => Some(StateKind::Container),
            (Self::PreviousResponse, _) if is_top => Some(StateKind::Response),
            (Self::Conversation, _) if is_top => Some(StateKind::Conversation),
            (Self::CachedContent, Below::WrappedRequest) if depth == 2 => Some(StateKind::CachedContent),
            (Self::CachedContent, _) if is_top => Some(StateKind::CachedContent),
            (Self::Id, Below::Container) if depth == 2 => Some(StateKind::Container),
            (Self::Id, Below::Conversation) if depth == 2 => Some(StateKind::Conversation),
            (Self::Id, Below::Prompt) if depth == 2 => Some(StateKind::Prompt),
            (Self::PreviousMessage, Below::Thread) if depth == 2 => Some(StateKind::Thread),
            (Self::PreviousMessage, Below::Diagnostics) if depth == 2 => Some(StateKind::ComparedMessage),
            (Self::ComparisonResponse, Below::CacheOptions) if depth == 2 => Some(StateKind::ComparedResponse),
            _ => None,
        }
    }
}
