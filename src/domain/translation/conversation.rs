//! The content of a request, independent of protocols: instructions, turns, tools and options. Strings without escapes are
//! borrowed from the client's body. Schemas and arguments remain JSON text, so they reach the provider unchanged.

use std::borrow::Cow;

use crate::domain::translation::reasoning::ReasoningState;

/// A request, as interpreted by its reader. If the client's body has a member that is not contained here, the reader has reported
/// it as a loss or refused the request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Conversation<'a> {
    /// The leading instructions, one block each.
    pub(crate) system: Vec<Cow<'a, str>>,
    /// The turns in order. Adjacent turns never have the same role, except for [`TurnRole::System`].
    pub(crate) turns: Vec<ConversationTurn<'a>>,
    /// The tools in the client's order; tools that were added by later messages are at the end.
    pub(crate) tools: Vec<ToolDefinition<'a>>,
    /// Which tools the model is allowed or forced to call.
    pub(crate) tool_choice: ToolChoice<'a>,
    /// All other options.
    pub(crate) options: RequestOptions<'a>,
}

/// Consecutive content of one role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ConversationTurn<'a> {
    /// The author of the turn.
    pub(crate) role: TurnRole,
    /// The content in order; never empty.
    pub(crate) blocks: Vec<ContentBlock<'a>>,
}

/// The author of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum TurnRole {
    /// The user. The results of tool calls are also in turns of this role.
    User,
    /// The model.
    Assistant,
    /// The system or the developer, after the first turn. Its turns contain only text.
    System,
}

/// A block of content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ContentBlock<'a> {
    /// The path of the block in the client's body.
    pub(crate) path: String,
    /// The content itself.
    pub(crate) content: BlockContent<'a>,
}

impl<'a> ContentBlock<'a> {
    /// Returns a block with this text, or no block if the text is empty.
    pub(crate) fn from_text(path: String, text: Cow<'a, str>) -> Vec<Self> {
        if text.is_empty() {
            return Vec::new();
        }
        let content = BlockContent::Text(text);
        vec![Self { path, content }]
    }

    /// Whether the block contains the result of a call.
    pub(crate) fn is_result(&self) -> bool {
        matches!(self.content, BlockContent::Result(_))
    }

    /// Whether the block contains a call.
    pub(crate) fn is_call(&self) -> bool {
        matches!(self.content, BlockContent::Call(_))
    }
}

/// The content of a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum BlockContent<'a> {
    /// Text; never empty.
    Text(Cow<'a, str>),
    /// The text with which the model refused to answer; only in the assistant's turns.
    Refusal(Cow<'a, str>),
    /// An image, document, audio or video; only in the user's turns.
    Media(MediaContent<'a>),
    /// Reasoning by the maker that this request is sent to; reasoning of other makers was dropped and reported. Only in the
    /// assistant's turns.
    Reasoning(ReasoningState<'a>),
    /// A call of a tool; only in the assistant's turns.
    Call(ToolCall<'a>),
    /// The result of a call; only in the user's turns.
    Result(ToolCallResult<'a>),
}

/// An image, document, audio or video.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MediaContent<'a> {
    /// The kind of media.
    pub(crate) kind: MediaKind,
    /// The location of the bytes.
    pub(crate) source: MediaSource<'a>,
    /// The name or title of a document; `None` if the client gives none.
    pub(crate) name: Option<Cow<'a, str>>,
}

/// A kind of media.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum MediaKind {
    /// An image.
    Image,
    /// A PDF or another document.
    Document,
    /// Audio.
    Audio,
    /// A video.
    Video,
}

/// The location of the bytes of media.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum MediaSource<'a> {
    /// Inside the request, in base64.
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
        /// The media type; `None` if the client does not state it.
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
    /// The arguments as the model wrote them. They are usually the JSON text of an object, but can also be any other text, or
    /// empty.
    pub(crate) arguments: Cow<'a, str>,
}

impl ToolCall<'_> {
    /// Returns the arguments as the JSON text of an object: `{}` if they are empty, and `{"input": …}` around text that is not an
    /// object. The second value says whether the text was wrapped like this.
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
    /// The tool's name at the provider; `None` if no call in the history has this id.
    pub(crate) name: Option<Cow<'a, str>>,
    /// The content: text and media.
    pub(crate) content: Vec<ContentBlock<'a>>,
    /// Whether the tool reported a failure.
    pub(crate) is_error: bool,
}

/// A tool that the client offers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ToolDefinition<'a> {
    /// The tool's path in the client's body.
    pub(crate) path: String,
    /// The tool's name at the provider.
    pub(crate) name: Cow<'a, str>,
    /// The tool's description; `None` if the client gives none.
    pub(crate) description: Option<Cow<'a, str>>,
    /// The JSON schema of the tool's arguments, as JSON text; `None` if the client gives no schema.
    pub(crate) schema: Option<Cow<'a, str>>,
    /// Whether the arguments must follow the schema; `None` if the client does not say.
    pub(crate) strict: Option<bool>,
}

/// Which tools the model is allowed or forced to call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum ToolChoice<'a> {
    /// The client does not state a choice.
    #[default]
    Unset,
    /// The model decides whether to call tools.
    Auto,
    /// The model must not call tools. The tools remain in the request, because the history may contain calls of them.
    Forbidden,
    /// The model must call at least one tool.
    Required,
    /// The model must call the tool with this name at the provider.
    Named(Cow<'a, str>),
}

/// An option and the path of its member in the client's body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PlacedOption<T> {
    /// The path of the member.
    pub(crate) path: Cow<'static, str>,
    /// The value of the option.
    pub(crate) value: T,
}

/// Returns an option with the path of its member; `None` if it has no value.
pub(crate) fn placed<T>(path: impl Into<Cow<'static, str>>, value: Option<T>) -> Option<PlacedOption<T>> {
    value.map(|value| PlacedOption {
        path: path.into(),
        value,
    })
}

/// The options of a request. Numbers keep the client's spelling. `None` means that the client does not set the option.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RequestOptions<'a> {
    /// Whether the answer is a stream.
    pub(crate) stream: bool,
    /// The maximum number of output tokens.
    pub(crate) max_tokens: Option<PlacedOption<u64>>,
    /// The sampling temperature.
    pub(crate) temperature: Option<PlacedOption<&'a str>>,
    /// The total probability of the tokens that the model chooses from; these are the most likely tokens.
    pub(crate) top_p: Option<PlacedOption<&'a str>>,
    /// The number of tokens that the model chooses from; these are the most likely tokens.
    pub(crate) top_k: Option<PlacedOption<&'a str>>,
    /// The seed for sampling.
    pub(crate) seed: Option<PlacedOption<&'a str>>,
    /// The penalty for tokens that have occurred.
    pub(crate) presence_penalty: Option<PlacedOption<&'a str>>,
    /// The penalty for tokens that have occurred. It grows with the number of times that a token has occurred.
    pub(crate) frequency_penalty: Option<PlacedOption<&'a str>>,
    /// The strings that end the answer.
    pub(crate) stop: Option<PlacedOption<Vec<Cow<'a, str>>>>,
    /// The amount of reasoning.
    pub(crate) reasoning: Option<PlacedOption<ReasoningRequest>>,
    /// Whether the client wants the reasoning or a summary of it; `None` if the client does not say.
    pub(crate) shows_reasoning: Option<bool>,
    /// The format of the answer's text.
    pub(crate) format: Option<PlacedOption<AnswerFormat<'a>>>,
    /// Whether the model is allowed to call several tools at once; `None` if the client does not say.
    pub(crate) parallel_calls: Option<PlacedOption<bool>>,
    /// The id that all requests of one conversation share, for the provider's prompt cache.
    pub(crate) cache_key: Option<PlacedOption<Cow<'a, str>>>,
}

/// The amount of reasoning that a client requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ReasoningRequest {
    /// The effort that the client requests. If the client requests a budget instead, the effort is the highest one whose budget
    /// does not exceed the client's budget.
    pub(crate) effort: ReasoningEffort,
    /// The client's budget in tokens; `None` if the client states none.
    pub(crate) budget: Option<u64>,
}

impl ReasoningRequest {
    /// Creates a request by effort.
    pub(crate) const fn by_effort(effort: ReasoningEffort) -> Self {
        Self { effort, budget: None }
    }

    /// Creates a request from a budget in tokens.
    pub(crate) fn by_budget(budget: u64) -> Self {
        let fits = |effort: &&ReasoningEffort| effort.budget() <= budget;
        let fitting = ReasoningEffort::ALL.iter().rev().find(fits);
        Self {
            // A budget below that of the lowest effort still requests reasoning.
            effort: match fitting.copied().unwrap_or(ReasoningEffort::Off) {
                ReasoningEffort::Off if budget > 0 => ReasoningEffort::Low,
                effort => effort,
            },
            budget: Some(budget),
        }
    }

    /// Returns the budget in tokens: the client's own, or else that of the effort.
    pub(crate) fn tokens(&self) -> u64 {
        self.budget.unwrap_or_else(|| self.effort.budget())
    }
}

/// The effort of reasoning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum ReasoningEffort {
    /// No reasoning.
    Off,
    /// The lowest effort.
    Minimal,
    /// Low effort.
    Low,
    /// Medium effort.
    Medium,
    /// High effort.
    High,
    /// An effort between high and maximum.
    ExtraHigh,
    /// The highest effort.
    Max,
}

impl ReasoningEffort {
    /// Every effort, from the lowest to the highest.
    pub(crate) const ALL: [Self; 7] = [
        Self::Off,
        Self::Minimal,
        Self::Low,
        Self::Medium,
        Self::High,
        Self::ExtraHigh,
        Self::Max,
    ];

    /// Returns the effort that has this name in any client's protocol; `None` for an unknown name.
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

    /// Returns the name of the effort in Responses and `chat/completions`, which have no `max`.
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

    /// Returns the budget in tokens that corresponds to the effort, for a provider that requires a budget.
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

/// The format of an answer's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AnswerFormat<'a> {
    /// Any JSON object.
    Json,
    /// JSON that follows a schema.
    Schema {
        /// The schema's name, which some protocols require; `None` if the client gives none.
        name: Option<Cow<'a, str>>,
        /// The schema's description; `None` if the client gives none.
        description: Option<Cow<'a, str>>,
        /// The schema as JSON text.
        schema: Cow<'a, str>,
        /// Whether the answer must follow the schema; `None` if the client does not say.
        strict: Option<bool>,
    },
}

/// Appends content. A new block can join the last turn, but earlier turns never change.
impl<'a> Conversation<'a> {
    /// Adds a block to the last turn if that turn has the same role and is not a system turn; otherwise adds the block as a new
    /// turn.
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
