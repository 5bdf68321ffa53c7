//! Answers across protocols: a reader converts a provider's events to typed events, and a writer converts those to the client's
//! events. There is no code for a particular pair of protocols. A non-streaming answer is assembled from the same typed events by
//! the same writer.

pub(crate) mod call_order;
pub(crate) mod read;
pub(crate) mod write;

use std::borrow::Cow;

use crate::domain::translation::reasoning::ReasoningState;

/// The maximum length, in bytes, of a provider's event that is buffered.
pub(crate) const EVENT_BYTES_MAX: usize = 1024 * 1024;
/// The maximum length of a non-streaming answer, in bytes.
pub(crate) const ANSWER_BYTES_MAX: usize = 16 * 1024 * 1024;
/// The maximum total length, in bytes, of call pieces that are retained until an earlier call has ended.
pub(crate) const WAITING_BYTES_MAX: usize = 1024 * 1024;
/// The maximum length, in bytes, of the text that a writer retains because the client's protocol repeats it at the end.
pub(crate) const REPEATED_BYTES_MAX: usize = 8 * 1024 * 1024;

/// The size of an event without its strings, in bytes, for the memory limits.
const EVENT_BYTES: usize = 64;

/// A typed event of an answer. There is no event for the end of a block: a writer closes the open block when another begins, so
/// blocks never overlap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AnswerEvent<'e> {
    /// The provider has begun the answer.
    Begin,
    /// More text.
    Text(Cow<'e, str>),
    /// More visible reasoning.
    Thought(Cow<'e, str>),
    /// More text of the model's refusal.
    Refusal(Cow<'e, str>),
    /// The opaque state of the reasoning so far. It belongs before the content that follows.
    Reasoning(ReasoningState<'e>),
    /// The beginning of a call. Calls can overlap; [`call_order::CallOrder`] makes them sequential.
    Call {
        /// The index of the call in this answer.
        call_index: u32,
        /// The provider's id of the call; empty if the provider gives none.
        id: Cow<'e, str>,
        /// The tool's name at the provider.
        name: Cow<'e, str>,
    },
    /// A further piece of a call's arguments. All pieces together are JSON text.
    Arguments {
        /// The index of the call in this answer.
        call_index: u32,
        /// The piece of the arguments.
        json: Cow<'e, str>,
    },
    /// The end of a complete call. Not every provider sends it.
    CallEnd {
        /// The index of the call in this answer.
        call_index: u32,
    },
    /// The end of a call that was cut off by the end of the answer. Its arguments are incomplete, so no client may run it.
    CallCut {
        /// The index of the call in this answer.
        call_index: u32,
    },
    /// A source of the preceding text.
    Cited(Citation<'e>),
    /// The end of the answer's content; only the usage can follow.
    Stop(StopCause),
    /// The answer has failed.
    Failed {
        /// The HTTP status that the error corresponds to.
        status: u16,
        /// The provider's message.
        message: Cow<'e, str>,
    },
    /// Content that no client's protocol can express. Only its type, which is given here, is reported.
    Lost(&'static str),
}

impl AnswerEvent<'_> {
    /// Returns the event with its own copies of all strings.
    pub(crate) fn into_owned(self) -> AnswerEvent<'static> {
        let owned = |text: Cow<'_, str>| Cow::Owned(text.into_owned());
        match self {
            Self::Begin => AnswerEvent::Begin,
            Self::Text(text) => AnswerEvent::Text(owned(text)),
            Self::Thought(text) => AnswerEvent::Thought(owned(text)),
            Self::Refusal(text) => AnswerEvent::Refusal(owned(text)),
            Self::Reasoning(state) => AnswerEvent::Reasoning(state.into_owned()),
            Self::Call { call_index, id, name } => AnswerEvent::Call {
                call_index,
                id: owned(id),
                name: owned(name),
            },
            Self::Arguments { call_index, json } => AnswerEvent::Arguments {
                call_index,
                json: owned(json),
            },
            Self::CallEnd { call_index } => AnswerEvent::CallEnd { call_index },
            Self::CallCut { call_index } => AnswerEvent::CallCut { call_index },
            Self::Cited(citation) => AnswerEvent::Cited(Citation {
                url: owned(citation.url),
                title: citation.title.map(owned),
                quote: citation.quote.map(owned),
            }),
            Self::Stop(cause) => AnswerEvent::Stop(cause),
            Self::Failed { status, message } => AnswerEvent::Failed {
                status,
                message: owned(message),
            },
            Self::Lost(content) => AnswerEvent::Lost(content),
        }
    }

    /// Returns the size for the memory limits, in bytes: the length of the event's strings, plus [`EVENT_BYTES`] if an event of
    /// this kind can lack strings.
    pub(crate) fn text_bytes(&self) -> usize {
        match self {
            Self::Text(text) | Self::Thought(text) | Self::Refusal(text) | Self::Failed { message: text, .. } => {
                text.len()
            }
            Self::Call { id, name, .. } => id.len() + name.len(),
            Self::Arguments { json, .. } => json.len(),
            Self::Reasoning(state) => EVENT_BYTES + state.text_bytes(),
            Self::Cited(Citation { url, title, quote }) => {
                let length = |text: &Option<Cow<'_, str>>| text.as_deref().map_or(0, str::len);
                EVENT_BYTES + url.len() + length(title) + length(quote)
            }
            Self::Begin | Self::CallEnd { .. } | Self::CallCut { .. } | Self::Stop(_) | Self::Lost(_) => EVENT_BYTES,
        }
    }
}

/// A source that a citation names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Citation<'e> {
    /// The source's address.
    pub(crate) url: Cow<'e, str>,
    /// The source's title; `None` if the provider gives none.
    pub(crate) title: Option<Cow<'e, str>>,
    /// The text quoted from the source; `None` if the provider gives none.
    pub(crate) quote: Option<Cow<'e, str>>,
}

/// The reason why an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum StopCause {
    /// The model finished the answer.
    End,
    /// One of the client's stop sequences was reached.
    Sequence,
    /// The model waits for the results of its calls.
    Calls,
    /// The maximum number of output tokens was reached.
    MaxTokens,
    /// The model's context window is full.
    ContextFull,
    /// The model declined to answer.
    Refused,
    /// A filter of the provider stopped the answer.
    Filtered,
    /// The model wrote a call that the provider cannot read.
    Malformed,
}

impl StopCause {
    /// Whether the answer ended early. If it did, a call with incomplete arguments was cut off.
    pub(crate) const fn is_cut(self) -> bool {
        match self {
            Self::End | Self::Calls => false,
            Self::Sequence | Self::MaxTokens | Self::ContextFull | Self::Refused | Self::Filtered | Self::Malformed => {
                true
            }
        }
    }
}

/// The kinds of content that the translation of an answer has lost, without duplicates.
#[derive(Debug, Default)]
pub(crate) struct AnswerLosses(Vec<&'static str>);

impl AnswerLosses {
    /// A call that was cut off by the end of the answer.
    pub(crate) const CALL: &'static str = "call";
    /// A source that the client's protocol cannot express.
    pub(crate) const CITATION: &'static str = "citation";
    /// Visible reasoning after the last text.
    pub(crate) const REASONING: &'static str = "reasoning";
    /// The opaque state of reasoning.
    pub(crate) const REASONING_STATE: &'static str = "reasoning_state";

    /// Adds a kind of content.
    pub(crate) fn add(&mut self, kind: &'static str) {
        if !self.0.contains(&kind) {
            self.0.push(kind);
        }
    }

    /// Adds all kinds of content of `other`.
    pub(crate) fn add_all(&mut self, other: &Self) {
        for kind in other.0.iter().copied() {
            self.add(kind);
        }
    }

    /// Returns the kinds in the order in which they were found.
    pub(crate) fn kinds(&self) -> &[&'static str] {
        &self.0
    }
}

/// The reason why the translation of an answer was aborted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AnswerFault {
    /// An event is longer than [`EVENT_BYTES_MAX`].
    #[error(
        "an event in the provider's answer is too large to translate; change the request so that the answer is shorter"
    )]
    EventTooLarge,
    /// A non-streaming answer is longer than [`ANSWER_BYTES_MAX`].
    #[error("the provider's answer is too large to translate; request a streaming answer instead")]
    AnswerTooLarge,
    /// The waiting pieces of overlapping calls are longer than [`WAITING_BYTES_MAX`].
    #[error("the provider's tool calls are too large to translate; send the request again")]
    CallsTooLarge,
    /// The text that the client's protocol repeats is longer than [`REPEATED_BYTES_MAX`].
    #[error("the answer is too long to translate into this protocol; send the request in the provider's own protocol")]
    TextTooLong,
    /// A non-streaming answer has failed. The client gets an error answer with the corresponding HTTP status.
    #[error("the provider failed to complete its answer; send the request again")]
    ProviderFailed {
        /// The HTTP status of the error answer.
        status: u16,
    },
    /// An event or body does not conform to the provider's protocol.
    #[error("the provider's answer cannot be read; send the request again")]
    Unreadable,
}
