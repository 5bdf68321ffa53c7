//! The content of a request, independent of protocols: instructions, turns, tools and options. Texts are borrowed from the client's
//! body where they have no escapes; schemas and arguments stay JSON text, so that they reach the provider as they came.

use std::borrow::Cow;

use crate::domain::translation::reasoning::ReasoningState;

/// A request as a reader has understood it. Everything that is not in it was reported as a loss or refused.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Conversation<'a> {
    /// The leading instructions, a block each.
    pub(crate) system: Vec<Cow<'a, str>>,
    /// The turns in order. Neighbours never have the same role, except for [`TurnRole::System`].
    pub(crate) turns: Vec<ConversationTurn<'a>>,
    /// The tools in the client's order; tools that joined later are at the end.
    pub(crate) tools: Vec<ToolDefinition<'a>>,
    /// Which tools the model is allowed or forced to call.
    pub(crate) tool_choice: ToolChoice<'a>,
    /// Everything else.
    pub(crate) options: RequestOptions<'a>,
}

/// Consecutive content of one role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ConversationTurn<'a> {
    /// The author of the turn.
    pub(crate) role: TurnRole,
    /// Its content in order; never empty.
    pub(crate) blocks: Vec<ContentBlock<'a>>,
}

/// The author of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum TurnRole {
    /// The user, and the results of tool calls.
    User,
    /// The model.
    Assistant,
    /// The system or developer, after the first turn. Has only texts.
    System,
}

/// One piece of content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ContentBlock<'a> {
    /// Its path in the client's body.
    pub(crate) path: String,
    /// The content itself.
    pub(crate) content: BlockContent<'a>,
}

impl<'a> ContentBlock<'a> {
    /// A text as a block, unless it is empty.
    pub(crate) fn from_text(path: String, text: Cow<'a, str>) -> Vec<Self> {
        if text.is_empty() {
            return Vec::new();
        }
        let content = BlockContent::Text(text);
        vec![Self { path, content }]
    }

    /// Whether the block is the result of a call.
    pub(crate) fn is_result(&self) -> bool {
        matches!(self.content, BlockContent::Result(_))
    }

    /// Whether the block is a call.
    pub(crate) fn is_call(&self) -> bool {
        matches!(self.content, BlockContent::Call(_))
    }
}

/// The content of a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum BlockContent<'a> {
    /// A text; never empty.
    Text(Cow<'a, str>),
    /// The text with which the model refused to answer; only in turns of the assistant.
    Refusal(Cow<'a, str>),
    /// An image, document, audio or video; only of the user.
    Media(MediaContent<'a>),
    /// Reasoning by the maker that this request goes to; foreign reasoning was dropped and reported. Only of the assistant.
    Reasoning(ReasoningState<'a>),
    /// A call of a tool; only of the assistant.
    Call(ToolCall<'a>),
    /// The result of a call; only of the user.
    Result(ToolCallResult<'a>),
}

/// Media content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MediaContent<'a> {
    /// Its kind.
    pub(crate) kind: MediaKind,
    /// Where its bytes are.
    pub(crate) source: MediaSource<'a>,
    /// The name or title of a document.
    pub(crate) name: Option<Cow<'a, str>>,
}

/// A kind of media.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum MediaKind {
    /// An image.
    Image,
    /// A PDF or another document.
    Document,
    /// Sound.
    Audio,
    /// A film.
    Video,
}

/// Where the bytes of media are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum MediaSource<'a> {
    /// In the request, in base64.
    Base64 {
        /// The media type, for example `image/png`.
        media_type: Cow<'a, str>,
        /// The bytes in standard base64.
        data: Cow<'a, str>,
    },
    /// At a URL that the provider fetches.
    Url {
        /// The URL.
        url: Cow<'a, str>,
        /// The media type, if the client states it.
        media_type: Option<Cow<'a, str>>,
    },
}

/// A call of a tool in the history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ToolCall<'a> {
    /// The provider's id of the call (see [`super::call_ids`]).
    pub(crate) id: Cow<'a, str>,
    /// The tool's name at the provider (see [`super::tool_names`]).
    pub(crate) name: Cow<'a, str>,
    /// The arguments as JSON text. Usually an object; a model may have written anything, also nothing.
    pub(crate) arguments: Cow<'a, str>,
}

impl ToolCall<'_> {
    /// The arguments as the JSON text of an object: `{}` if they are empty, and `{"input": …}` around text that is not an object. The
    /// second
    /// value is whether the text had to be wrapped.
    pub(crate) fn object_arguments(&self) -> (Cow<'_, str>, bool) {
        let text = self.arguments.trim();
        if text.is_empty() {
            return (Cow::Borrowed("{}"), false);
        }
        let is_object = text.starts_with('{') && serde_json::from_str::<&serde_json::value::RawValue>(text).is_ok();
        if is_object {
            return (Cow::Borrowed(text), false);
        }
        let quoted = serde_json::Value::from(text).to_string();
        (Cow::Owned(format!(r#"{{"input":{quoted}}}"#)), true)
    }
}

/// The result of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ToolCallResult<'a> {
    /// The provider's id of the call.
    pub(crate) call_id: Cow<'a, str>,
    /// The tool's name at the provider, if a call with this id is in the history.
    pub(crate) name: Option<Cow<'a, str>>,
    /// The content: texts and media.
    pub(crate) content: Vec<ContentBlock<'a>>,
    /// Whether the tool reported a failure.
    pub(crate) is_error: bool,
}

/// A tool that the client offers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ToolDefinition<'a> {
    /// Its path in the client's body.
    pub(crate) path: String,
    /// Its name at the provider.
    pub(crate) name: Cow<'a, str>,
    /// Its description.
    pub(crate) description: Option<Cow<'a, str>>,
    /// The JSON schema of its arguments, as JSON text; `None` if it takes none.
    pub(crate) schema: Option<Cow<'a, str>>,
    /// Whether the arguments must follow the schema; `None` if the client does not say.
    pub(crate) strict: Option<bool>,
}

/// Which tools the model is allowed or forced to call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum ToolChoice<'a> {
    /// The client does not say.
    #[default]
    Unset,
    /// The model chooses whether to call any.
    Auto,
    /// The model must not call a tool. The tools stay in the request, because the history may have calls of them.
    Forbidden,
    /// At least one of them.
    Required,
    /// The model must call the tool with this name at the provider.
    Named(Cow<'a, str>),
}

/// An option with the path of its member in the client's body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PlacedOption<T> {
    /// The path.
    pub(crate) path: Cow<'static, str>,
    /// The value.
    pub(crate) value: T,
}

/// An option with the path of its member, if it has a value.
pub(crate) fn placed<T>(path: impl Into<Cow<'static, str>>, value: Option<T>) -> Option<PlacedOption<T>> {
    value.map(|value| PlacedOption {
        path: path.into(),
        value,
    })
}

/// The options of a request. Numbers are spelled as the client spelled them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RequestOptions<'a> {
    /// Whether the answer is a stream.
    pub(crate) stream: bool,
    /// The maximum number of output tokens.
    pub(crate) max_tokens: Option<PlacedOption<u64>>,
    /// The sampling temperature.
    pub(crate) temperature: Option<PlacedOption<&'a str>>,
    /// The probability mass to sample from.
    pub(crate) top_p: Option<PlacedOption<&'a str>>,
    /// The number of tokens to sample from.
    pub(crate) top_k: Option<PlacedOption<&'a str>>,
    /// The seed of sampling.
    pub(crate) seed: Option<PlacedOption<&'a str>>,
    /// The penalty for tokens that are present already.
    pub(crate) presence_penalty: Option<PlacedOption<&'a str>>,
    /// The penalty for frequent tokens.
    pub(crate) frequency_penalty: Option<PlacedOption<&'a str>>,
    /// Texts that end the answer.
    pub(crate) stop: Option<PlacedOption<Vec<Cow<'a, str>>>>,
    /// How much the model reasons.
    pub(crate) reasoning: Option<PlacedOption<ReasoningRequest>>,
    /// Whether the client wants to see the reasoning or a summary; `None` if it does not say.
    pub(crate) shows_reasoning: Option<bool>,
    /// The form of the answer's text.
    pub(crate) format: Option<PlacedOption<AnswerFormat<'a>>>,
    /// Whether the model is allowed to call several tools at once; `None` if the client does not say.
    pub(crate) parallel_calls: Option<PlacedOption<bool>>,
    /// The identifier that all requests of one conversation share, for the provider's prompt cache.
    pub(crate) cache_key: Option<PlacedOption<Cow<'a, str>>>,
}

/// How much the model shall reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ReasoningRequest {
    /// The effort: the client's own, or the largest whose budget is not above the client's.
    pub(crate) effort: ReasoningEffort,
    /// The client's budget in tokens, if it states one.
    pub(crate) budget: Option<u64>,
}

impl ReasoningRequest {
    /// A request by effort.
    pub(crate) const fn by_effort(effort: ReasoningEffort) -> Self {
        Self { effort, budget: None }
    }

    /// A request by budget in tokens.
    pub(crate) fn by_budget(budget: u64) -> Self {
        let fits = |effort: &&ReasoningEffort| effort.budget() <= budget;
        let fitting = ReasoningEffort::ALL.iter().rev().find(fits);
        Self {
            // A budget below that of the lowest effort still asks for reasoning.
            effort: match fitting.copied().unwrap_or(ReasoningEffort::Off) {
                ReasoningEffort::Off if budget > 0 => ReasoningEffort::Low,
                effort => effort,
            },
            budget: Some(budget),
        }
    }

    /// The budget in tokens: the client's own, else that of the effort.
    pub(crate) fn tokens(&self) -> u64 {
        self.budget.unwrap_or_else(|| self.effort.budget())
    }
}

/// An effort of reasoning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum ReasoningEffort {
    /// No reasoning.
    Off,
    /// The least.
    Minimal,
    /// Little.
    Low,
    /// The usual.
    Medium,
    /// Much.
    High,
    /// More.
    ExtraHigh,
    /// The most.
    Max,
}

impl ReasoningEffort {
    /// Every effort, the lowest first.
    pub(crate) const ALL: [Self; 7] = [
        Self::Off,
        Self::Minimal,
        Self::Low,
        Self::Medium,
        Self::High,
        Self::ExtraHigh,
        Self::Max,
    ];

    /// The effort with this word; all three vendors' words are known.
    pub(crate) fn from_word(word: &str) -> Option<Self> {
        Some(match word.to_ascii_lowercase().as_str() {
            "none" => Self::Off,
            "minimal" => Self::Minimal,
            "low" => Self::Low,
            "medium" => Self::Medium,
            "high" => Self::High,
            "xhigh" => Self::ExtraHigh,
            "max" => Self::Max,
            _ => return None,
        })
    }

    /// The word of Responses and `chat/completions`, which have no `max`.
    pub(crate) const fn responses_word(self) -> &'static str {
        match self {
            Self::Off => "none",
            Self::Minimal => "minimal",
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
            Self::ExtraHigh | Self::Max => "xhigh",
        }
    }

    /// The budget in tokens that stands for the effort where a provider wants one.
    pub(crate) const fn budget(self) -> u64 {
        match self {
            Self::Off => 0,
            Self::Minimal | Self::Low => 4_096,
            Self::Medium => 8_192,
            Self::High => 16_384,
            Self::ExtraHigh | Self::Max => 32_768,
        }
    }
}

/// The form of an answer's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AnswerFormat<'a> {
    /// Any JSON object.
    Json,
    /// JSON by a schema.
    Schema {
        /// The schema's name, which some protocols require.
        name: Option<Cow<'a, str>>,
        /// The schema's description.
        description: Option<Cow<'a, str>>,
        /// The schema as JSON text.
        schema: Cow<'a, str>,
        /// Whether the answer must follow the schema; `None` if the client does not say.
        strict: Option<bool>,
    },
}

/// Appends content. A block can join the last turn, but no earlier turn changes.
impl<'a> Conversation<'a> {
    /// Adds a block: to the last turn if that has the same role and is not the system's, otherwise as a new turn.
    pub(crate) fn push(&mut self, role: TurnRole, block: ContentBlock<'a>) {
        match self.turns.last_mut() {
            Some(last) if last.role == role && role != TurnRole::System => last.blocks.push(block),
            _ => self.turns.push(ConversationTurn {
                role,
                blocks: vec![block],
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_that_are_no_object_become_one() {
        let call = |arguments: &'static str| ToolCall {
            id: "call_1".into(),
            name: "tool".into(),
            arguments: arguments.into(),
        };
        for (text, expected, wrapped) in [
            ("", "{}", false),
            (" {\"a\": 1.0} ", "{\"a\": 1.0}", false),
            ("[1]", r#"{"input":"[1]"}"#, true),
            ("{\"a\"", r#"{"input":"{\"a\""}"#, true),
        ] {
            assert_eq!(
                call(text).object_arguments(),
                (Cow::Borrowed(expected), wrapped),
                "{text}"
            );
        }
    }

    #[test]
    fn a_budget_becomes_the_largest_effort_not_above_it() {
        let effort = |budget| ReasoningRequest::by_budget(budget).effort;
        assert_eq!(effort(0), ReasoningEffort::Off);
        assert_eq!(effort(1_024), ReasoningEffort::Low);
        assert_eq!(effort(4_096), ReasoningEffort::Low);
        assert_eq!(effort(16_000), ReasoningEffort::Medium);
        assert_eq!(effort(100_000), ReasoningEffort::Max);
    }
}
