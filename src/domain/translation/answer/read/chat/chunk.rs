//! The types for parsing chunks and bodies of `chat/completions` answers.

use std::{borrow::Cow, fmt};

use serde::{
    Deserialize,
    de::{Deserializer, SeqAccess, Visitor, value::SeqAccessDeserializer},
};
use serde_json::value::RawValue;
use smallvec::SmallVec;

use crate::domain::translation::{
    ChatReasoning,
    answer::{AnswerEvent, AnswerFault, AnswerLosses, Citation},
    members::as_text,
};

/// A chunk of a stream, or the body of a non-streaming answer.
#[derive(Debug, Deserialize)]
pub(super) struct ChatChunk<'a> {
    /// The alternative answers; weir requests only one.
    #[serde(borrow)]
    pub(super) choices: Option<SmallVec<[ChatChoice<'a>; 1]>>,
    /// The error; `None` unless the answer has failed.
    #[serde(borrow)]
    pub(super) error: Option<&'a RawValue>,
}

impl<'a> ChatChunk<'a> {
    /// Returns the text if the chunk adds only text and the text has no escapes; otherwise returns `None`.
    pub(super) fn only_text(&self) -> Option<&'a str> {
        let (None, [choice]) = (self.error, self.choices.as_deref()?) else {
            return None;
        };
        let is_plain = matches!(choice.index, None | Some(0))
            && choice.error.is_none()
            && choice.message.is_none()
            && choice.finish_reason.as_ref().is_none_or(String::is_empty);
        choice.delta.as_ref().filter(|_| is_plain)?.only_text()
    }
}

/// One of the alternative answers.
#[derive(Debug, Deserialize)]
pub(super) struct ChatChoice<'a> {
    /// The index of this choice.
    pub(super) index: Option<u64>,
    #[serde(borrow)]
    delta: Option<ChatDelta<'a>>,
    #[serde(borrow)]
    message: Option<ChatDelta<'a>>,
    /// The reason why this choice ended; only in its last chunk.
    pub(super) finish_reason: Option<String>,
    /// The error, which some hosts report in the choice.
    #[serde(borrow)]
    pub(super) error: Option<&'a RawValue>,
}

impl<'a> ChatChoice<'a> {
    /// Returns the new content of a chunk, or the message of a body.
    pub(super) fn content(&self) -> Option<&ChatDelta<'a>> {
        self.delta.as_ref().or(self.message.as_ref())
    }

    /// Returns the new content of a chunk.
    pub(super) fn new_content(&self) -> Option<&ChatDelta<'a>> {
        self.delta.as_ref()
    }
}

/// The content of a delta or message as events; most deltas have one event.
type ContentEvents<'e> = SmallVec<[AnswerEvent<'e>; 1]>;

/// New content, or a complete message.
#[derive(Debug, Deserialize)]
pub(super) struct ChatDelta<'a> {
    #[serde(borrow)]
    content: Option<ChatContent<'a>>,
    #[serde(borrow)]
    reasoning_content: Option<&'a RawValue>,
    #[serde(borrow)]
    reasoning: Option<&'a RawValue>,
    /// The reasoning as an array of parts, some of which may be opaque.
    #[serde(borrow)]
    reasoning_details: Option<&'a RawValue>,
    refusal: Option<String>,
    #[serde(borrow)]
    annotations: Option<&'a RawValue>,
    #[serde(borrow)]
    audio: Option<&'a RawValue>,
    #[serde(borrow)]
    images: Option<&'a RawValue>,
    /// Pieces of calls.
    #[serde(borrow)]
    pub(super) tool_calls: Option<Vec<ChatCallPiece<'a>>>,
    /// A call, or a piece of a call. This older member can contain only one call.
    #[serde(borrow)]
    pub(super) function_call: Option<ChatCallFunction<'a>>,
}

/// The content of a delta or message.
#[derive(Debug)]
enum ChatContent<'a> {
    /// A string.
    Text(Cow<'a, str>),
    /// An array of parts.
    Parts(Vec<ChatAnswerPart<'a>>),
}

impl<'de: 'a, 'a> Deserialize<'de> for ChatContent<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ContentVisitor;
        impl<'de> Visitor<'de> for ContentVisitor {
            type Value = ChatContent<'de>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a string or an array of parts")
            }

            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(ChatContent::Text(Cow::Borrowed(text)))
            }

            fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
                Ok(ChatContent::Text(Cow::Owned(text.to_owned())))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, parts: A) -> Result<Self::Value, A::Error> {
                Vec::deserialize(SeqAccessDeserializer::new(parts)).map(ChatContent::Parts)
            }
        }
        deserializer.deserialize_any(ContentVisitor)
    }
}

/// A piece of a call.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct ChatCallPiece<'a> {
    /// The index of the call.
    pub(super) index: Option<u64>,
    /// The call's id.
    pub(super) id: Option<String>,
    /// The name and arguments, or pieces of them.
    #[serde(borrow)]
    pub(super) function: Option<ChatCallFunction<'a>>,
}

/// The name and arguments of a call, or pieces of them.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct ChatCallFunction<'a> {
    name: Option<String>,
    /// A string that contains the arguments as JSON text; some hosts send the arguments as a JSON value instead.
    #[serde(borrow)]
    arguments: Option<&'a RawValue>,
}

impl<'a> ChatCallPiece<'a> {
    /// Returns the id, or an empty string.
    pub(super) fn id(&self) -> &str {
        self.id.as_deref().unwrap_or_default()
    }

    /// Returns the name or a piece of it, or an empty string.
    pub(super) fn name(&self) -> &str {
        let name = self.function.as_ref().and_then(|function| function.name.as_deref());
        name.unwrap_or_default()
    }

    /// Returns a piece of the arguments, or an empty string.
    ///
    /// # Errors
    /// The arguments are a string that cannot be decoded.
    pub(super) fn arguments(&self) -> Result<Cow<'a, str>, AnswerFault> {
        match self.function.as_ref().and_then(|function| function.arguments) {
            None => Ok(Cow::Borrowed("")),
            Some(text) if text.get().starts_with('"') => as_text(text).ok_or(AnswerFault::Unreadable),
            Some(json) => Ok(Cow::Borrowed(json.get())),
        }
    }
}

impl<'a> ChatDelta<'a> {
    /// Returns the content in order, without calls. Text is never empty.
    pub(super) fn events(&self, reasoning: ChatReasoning) -> ContentEvents<'_> {
        let mut events = self.content_events();
        // A host that sends its reasoning in the content may repeat it in a member.
        if !events.iter().any(|event| matches!(event, AnswerEvent::Thought(_)))
            && let Some(thought) = self.thought(reasoning)
        {
            events.insert(0, AnswerEvent::Thought(thought));
        }
        if let Some(refusal) = self.refusal.as_deref().filter(|refusal| !refusal.is_empty()) {
            events.push(AnswerEvent::Refusal(Cow::Borrowed(refusal)));
        }
        if let Some(annotations) = self.annotations {
            events.extend(citations(annotations));
        }
        let has_opaque = |detail: &ChatReasoningDetail| detail.kind == "reasoning.encrypted";
        let is_there = |value: Option<&RawValue>| value.is_some_and(|value| value.get() != "[]");
        let lost = [
            (self.details().iter().any(has_opaque), "reasoning_details"),
            (is_there(self.audio), "audio"),
            (is_there(self.images), "image"),
        ];
        let lost = lost.into_iter().filter(|(is_lost, _)| *is_lost);
        events.extend(lost.map(|(_, kind)| AnswerEvent::Lost(kind)));
        events
    }

    /// Returns the text if it has no escapes and there is no other content; otherwise returns `None`.
    fn only_text(&self) -> Option<&'a str> {
        let has_calls = self.function_call.is_some() || self.tool_calls.iter().flatten().next().is_some();
        let others = [
            self.reasoning_content,
            self.reasoning,
            self.reasoning_details,
            self.annotations,
            self.audio,
            self.images,
        ];
        if has_calls || self.refusal.is_some() || others.iter().any(Option::is_some) {
            return None;
        }
        match self.content {
            Some(ChatContent::Text(Cow::Borrowed(text))) if !text.is_empty() => Some(text),
            _ => None,
        }
    }

    /// Whether the delta or message contains a refusal, a piece of a call, text or reasoning. Text and reasoning that are only
    /// white space do not count.
    pub(super) fn has_content(&self) -> bool {
        let is_text = |event: &AnswerEvent<'_>| match event {
            AnswerEvent::Text(text) | AnswerEvent::Thought(text) => !text.trim().is_empty(),
            _ => false,
        };
        let is_call = |piece: &ChatCallPiece<'_>| {
            !piece.name().is_empty() || piece.arguments().is_ok_and(|arguments| !arguments.is_empty())
        };
        let has_refusal = self.refusal.as_ref().is_some_and(|refusal| !refusal.is_empty());
        let thought = self.thought(ChatReasoning::default());
        has_refusal
            || self.function_call.is_some()
            || thought.is_some_and(|thought| !thought.trim().is_empty())
            || self.content_events().iter().any(is_text)
            || self.tool_calls.iter().flatten().any(is_call)
    }

    fn content_events(&self) -> ContentEvents<'_> {
        match &self.content {
            None => SmallVec::new(),
            Some(ChatContent::Text(text)) => borrow_unless_empty(text).map(AnswerEvent::Text).into_iter().collect(),
            Some(ChatContent::Parts(parts)) => parts.iter().filter_map(ChatAnswerPart::to_event).collect(),
        }
    }

    /// Returns the new reasoning. Some hosts send the same text in several members, so this function reads only one of them. It
    /// prefers the member that `reasoning` names.
    fn thought(&self, reasoning: ChatReasoning) -> Option<Cow<'a, str>> {
        let members = match reasoning {
            ChatReasoning::Reasoning => [self.reasoning, self.reasoning_content],
            ChatReasoning::ReasoningContent | ChatReasoning::Content | ChatReasoning::Hidden => {
                [self.reasoning_content, self.reasoning]
            }
        };
        let mut texts = members.into_iter().flatten().filter_map(as_text);
        texts.find(|text| !text.is_empty()).or_else(|| {
            let details = self.details();
            let texts = details
                .iter()
                .flat_map(|detail| [&detail.text, &detail.summary])
                .flatten();
            let text: String = texts.map(String::as_str).collect();
            (!text.is_empty()).then_some(Cow::Owned(text))
        })
    }

    fn details(&self) -> Vec<ChatReasoningDetail> {
        let details = self
            .reasoning_details
            .and_then(|details| serde_json::from_str(details.get()).ok());
        details.unwrap_or_default()
    }
}

/// A part of `reasoning_details`.
#[derive(Debug, Deserialize)]
struct ChatReasoningDetail {
    #[serde(rename = "type")]
    kind: String,
    text: Option<String>,
    summary: Option<String>,
}

/// A part of the content.
#[derive(Debug, Deserialize)]
struct ChatAnswerPart<'a> {
    #[serde(rename = "type")]
    kind: Option<String>,
    text: Option<String>,
    refusal: Option<String>,
    /// A string, or an array of parts with text.
    #[serde(borrow)]
    thinking: Option<&'a RawValue>,
}

impl ChatAnswerPart<'_> {
    /// Returns the content of the part; `None` if its text is empty.
    fn to_event(&self) -> Option<AnswerEvent<'_>> {
        match self.kind.as_deref() {
            None | Some("text" | "output_text") => text_of(&self.text).map(AnswerEvent::Text),
            Some("thinking" | "reasoning") => match self.thinking_text() {
                Some(thinking) => (!thinking.is_empty()).then_some(AnswerEvent::Thought(thinking)),
                None => text_of(&self.text).map(AnswerEvent::Thought),
            },
            Some("refusal") => text_of(&self.refusal).map(AnswerEvent::Refusal),
            Some("reference" | "tool_reference") => Some(AnswerEvent::Lost(AnswerLosses::CITATION)),
            Some("image_url" | "image") => Some(AnswerEvent::Lost("image")),
            Some(_) => Some(AnswerEvent::Lost("content_part")),
        }
    }

    fn thinking_text(&self) -> Option<Cow<'_, str>> {
        let thinking = self.thinking?;
        if let Some(text) = as_text(thinking) {
            return Some(text);
        }
        let parts: Vec<ChatAnswerPart<'_>> = serde_json::from_str(thinking.get()).ok()?;
        Some(parts.into_iter().filter_map(|part| part.text).collect())
    }
}

/// Returns the text of an optional member; `None` if it is empty.
fn text_of(member: &Option<String>) -> Option<Cow<'_, str>> {
    member.as_deref().and_then(borrow_unless_empty)
}

fn borrow_unless_empty(text: &str) -> Option<Cow<'_, str>> {
    (!text.is_empty()).then_some(Cow::Borrowed(text))
}

/// An annotation of the text.
#[derive(Debug, Deserialize)]
struct ChatAnnotation {
    url_citation: Option<ChatSource>,
}

/// A source on the web.
#[derive(Debug, Deserialize)]
struct ChatSource {
    url: String,
    title: Option<String>,
    content: Option<String>,
}

/// Returns the sources that annotations name.
fn citations(annotations: &RawValue) -> Vec<AnswerEvent<'static>> {
    let Ok(annotations) = serde_json::from_str::<Vec<ChatAnnotation>>(annotations.get()) else {
        return vec![AnswerEvent::Lost(AnswerLosses::CITATION)];
    };
    let cited = |annotation: ChatAnnotation| match annotation.url_citation {
        Some(source) => AnswerEvent::Cited(Citation {
            url: Cow::Owned(source.url),
            title: source.title.map(Cow::Owned),
            quote: source.content.map(Cow::Owned),
        }),
        None => AnswerEvent::Lost(AnswerLosses::CITATION),
    };
    annotations.into_iter().map(cited).collect()
}
