//! Answers across protocols: a reader turns a provider's events into typed events, and a writer turns those into the client's. No
//! pair of protocols has code of its own. A non-streaming answer is the fold of its events by the same writer.

pub(crate) mod call_order;
pub(crate) mod read;
pub(crate) mod write;

use std::borrow::Cow;

use crate::domain::translation::reasoning::ReasoningState;

/// The maximum length of a provider's event that is held for reading, in bytes.
pub(crate) const EVENT_BYTES_MAX: usize = 1024 * 1024;
/// The maximum length of a non-streaming answer, in bytes.
pub(crate) const ANSWER_BYTES_MAX: usize = 16 * 1024 * 1024;
/// The maximum length of pieces of calls that wait for an earlier call's end, in bytes.
pub(crate) const WAITING_BYTES_MAX: usize = 1024 * 1024;
/// The maximum length of text that a writer keeps because the client's protocol repeats it at the end, in bytes.
pub(crate) const REPEATED_BYTES_MAX: usize = 8 * 1024 * 1024;

/// The size of an event without its texts, in bytes, for the memory limits.
const EVENT_BYTES: usize = 64;

/// A typed event of an answer. Blocks have no end: a writer closes an open block when another begins, so blocks never overlap.
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
    /// The opaque state of the reasoning so far; it belongs before the content that follows.
    Reasoning(ReasoningState<'e>),
    /// A call begins. Calls may overlap; [`call_order::CallOrder`] puts them one after the other.
    Call {
        /// The call's number in this answer.
        slot: u32,
        /// The provider's id of the call; empty if the provider gives none.
        id: Cow<'e, str>,
        /// The tool's name at the provider.
        name: Cow<'e, str>,
    },
    /// More of a call's arguments, as JSON text.
    Arguments {
        /// The call's number.
        slot: u32,
        /// The piece.
        json: Cow<'e, str>,
    },
    /// A call is complete. Not every provider says so.
    CallEnd {
        /// The call's number.
        slot: u32,
    },
    /// The end of the answer has cut a call off: its arguments are incomplete, so no client may run it.
    CallCut {
        /// The call's number.
        slot: u32,
    },
    /// A source of the text so far.
    Cited(Citation<'e>),
    /// The answer is complete, except for its usage.
    Stop(StopCause),
    /// The answer has failed.
    Failed {
        /// The HTTP status that the error corresponds to.
        status: u16,
        /// The provider's message.
        message: Cow<'e, str>,
    },
    /// Content that no client's protocol can express. Only its type, given here, is reported.
    Lost(&'static str),
}

impl AnswerEvent<'_> {
    /// The event with its own copies of all texts.
    pub(crate) fn into_owned(self) -> AnswerEvent<'static> {
        let owned = |text: Cow<'_, str>| Cow::Owned(text.into_owned());
        match self {
            Self::Begin => AnswerEvent::Begin,
            Self::Text(text) => AnswerEvent::Text(owned(text)),
            Self::Thought(text) => AnswerEvent::Thought(owned(text)),
            Self::Refusal(text) => AnswerEvent::Refusal(owned(text)),
            Self::Reasoning(state) => AnswerEvent::Reasoning(state.into_owned()),
            Self::Call { slot, id, name } => AnswerEvent::Call {
                slot,
                id: owned(id),
                name: owned(name),
            },
            Self::Arguments { slot, json } => AnswerEvent::Arguments {
                slot,
                json: owned(json),
            },
            Self::CallEnd { slot } => AnswerEvent::CallEnd { slot },
            Self::CallCut { slot } => AnswerEvent::CallCut { slot },
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

    /// The size for the memory limits, in bytes: the length of its texts, and [`EVENT_BYTES`] if an event of this kind can lack texts.
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

/// A source that a text names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Citation<'e> {
    /// Its address.
    pub(crate) url: Cow<'e, str>,
    /// Its title.
    pub(crate) title: Option<Cow<'e, str>>,
    /// The quoted words of the source.
    pub(crate) quote: Option<Cow<'e, str>>,
}

/// Why an answer is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum StopCause {
    /// The model has said everything.
    End,
    /// One of the client's stop sequences was reached.
    Sequence,
    /// The model waits for the results of its calls.
    Calls,
    /// The maximum number of output tokens is reached.
    MaxTokens,
    /// The model's context is full.
    ContextFull,
    /// The model declined.
    Refused,
    /// A filter of the provider stopped the answer.
    Filtered,
    /// The model wrote a call that the provider cannot read.
    Malformed,
}

impl StopCause {
    /// Whether the answer ended before the model had said everything, so that a call whose arguments are incomplete was cut off.
    pub(crate) const fn is_cut(self) -> bool {
        match self {
            Self::End | Self::Calls => false,
            Self::Sequence | Self::MaxTokens | Self::ContextFull | Self::Refused | Self::Filtered | Self::Malformed => {
                true
            }
        }
    }
}

/// The kinds of content in an answer that the client does not get, each once.
#[derive(Debug, Default)]
pub(crate) struct AnswerLosses(Vec<&'static str>);

impl AnswerLosses {
    /// A call that the end of the answer has cut off.
    pub(crate) const CALL: &'static str = "call";
    /// A source that the client's protocol cannot name.
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

    /// The kinds in the order in which they were found.
    pub(crate) fn kinds(&self) -> &[&'static str] {
        &self.0
    }
}

/// Why an answer cannot be translated to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AnswerFault {
    /// An event is longer than [`EVENT_BYTES_MAX`].
    #[error("an event of the provider is too large to translate; send the request again with less to answer")]
    EventTooLarge,
    /// A non-streaming answer is longer than [`ANSWER_BYTES_MAX`].
    #[error("the provider's answer is too large to translate; request a stream")]
    AnswerTooLarge,
    /// Calls that overlap are longer than [`WAITING_BYTES_MAX`].
    #[error("the provider's tool calls are too large to translate; send the request again")]
    CallsTooLarge,
    /// The text that the client's protocol repeats is longer than [`REPEATED_BYTES_MAX`].
    #[error("the answer is too long for this protocol; use the provider's own protocol")]
    TextTooLong,
    /// A non-streaming answer has failed: the client gets an error answer that corresponds to this HTTP status.
    #[error("the provider's answer has failed; send the request again")]
    ProviderFailed {
        /// The HTTP status.
        status: u16,
    },
    /// An event or body is not what the provider's protocol says.
    #[error("the provider's answer cannot be read; send the request again")]
    Unreadable,
}
