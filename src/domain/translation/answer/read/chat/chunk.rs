//! The types for parsing chunks and bodies of `chat/completions` answers.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

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
    pub(super) choices: Option<Vec<ChatChoice<'a>>>,
    /// The error; `None` unless the answer has failed.
    #[serde(borrow)]
    pub(super) error: Option<&'a RawValue>,
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

/// New content, or a complete message.
#[derive(Debug, Deserialize)]
pub(super) struct ChatDelta<'a> {
    /// A string, or an array of parts.
    #[serde(borrow)]
    content: Option<&'a RawValue>,
    #[serde(borrow)]
    reasoning_content: Option<&'a RawValue>,
    #[serde(borrow)]
    reasoning: Option<&'a RawValue>,
    /// The reasoning as an array of parts, with opaque parts as well.
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
    /// A call, or a piece of it, in the older member for a single call.
    #[serde(borrow)]
    pub(super) function_call: Option<ChatCallFunction<'a>>,
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
    /// The arguments as JSON text in a string; some hosts send the JSON itself.
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
    /// The arguments are not a string.
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
    ///
    /// # Errors
    /// The content is neither a string nor an array of parts.
    pub(super) fn events(&self, reasoning: ChatReasoning) -> Result<Vec<AnswerEvent<'a>>, AnswerFault> {
        let content = self.content_events()?;
        let mut events = Vec::with_capacity(content.len() + 1);
        // A host that sends its reasoning in the content may repeat it in a member.
        if !content.iter().any(|event| matches!(event, AnswerEvent::Thought(_))) {
            events.extend(self.thought(reasoning).map(AnswerEvent::Thought));
        }
        events.extend(content);
        if let Some(refusal) = self.refusal.as_ref().filter(|refusal| !refusal.is_empty()) {
            events.push(AnswerEvent::Refusal(Cow::Owned(refusal.clone())));
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
        Ok(events)
    }

    /// Whether there is text, reasoning or a piece of a call other than white space.
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
            || self.content_events().is_ok_and(|events| events.iter().any(is_text))
            || self.tool_calls.iter().flatten().any(is_call)
    }

    fn content_events(&self) -> Result<Vec<AnswerEvent<'a>>, AnswerFault> {
        let Some(content) = self.content else {
            return Ok(Vec::new());
        };
        if content.get().starts_with('"') {
            let text = as_text(content).ok_or(AnswerFault::Unreadable)?;
            return Ok(match text.is_empty() {
                true => Vec::new(),
                false => vec![AnswerEvent::Text(text)],
            });
        }
        let parts: Vec<ChatAnswerPart<'a>> =
            serde_json::from_str(content.get()).map_err(|_| AnswerFault::Unreadable)?;
        Ok(parts.into_iter().filter_map(ChatAnswerPart::into_event).collect())
    }

    /// Returns the new reasoning. The host's own member comes first, because some hosts send the same text in several members.
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
    /// Converts the part to an event; `None` if its text is empty.
    fn into_event(self) -> Option<AnswerEvent<'static>> {
        match self.kind.as_deref() {
            None | Some("text" | "output_text") => unless_empty(self.text).map(AnswerEvent::Text),
            Some("thinking" | "reasoning") => {
                unless_empty(self.thinking_text().or(self.text)).map(AnswerEvent::Thought)
            }
            Some("refusal") => unless_empty(self.refusal).map(AnswerEvent::Refusal),
            Some("reference" | "tool_reference") => Some(AnswerEvent::Lost(AnswerLosses::CITATION)),
            Some("image_url" | "image") => Some(AnswerEvent::Lost("image")),
            Some(_) => Some(AnswerEvent::Lost("content_part")),
        }
    }

    fn thinking_text(&self) -> Option<String> {
        let thinking = self.thinking?;
        if let Some(text) = as_text(thinking) {
            return Some(text.into_owned());
        }
        let parts: Vec<ChatAnswerPart<'_>> = serde_json::from_str(thinking.get()).ok()?;
        Some(parts.into_iter().filter_map(|part| part.text).collect())
    }
}

fn unless_empty(text: Option<String>) -> Option<Cow<'static, str>> {
    text.filter(|text| !text.is_empty()).map(Cow::Owned)
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
