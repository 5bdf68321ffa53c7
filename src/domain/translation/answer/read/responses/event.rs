//! The types for parsing events and bodies of Responses answers.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::domain::translation::{
    answer::{AnswerEvent, AnswerFault, AnswerLosses, Citation},
    members::as_text,
};

/// An event of a stream. Its type determines its members.
#[derive(Debug, Deserialize)]
pub(super) struct ResponsesEvent<'a> {
    /// The type of the event.
    #[serde(rename = "type")]
    pub(super) kind: Option<String>,
    /// The index of the item in the output.
    pub(super) output_index: Option<u64>,
    /// The index of the part in the item's content.
    pub(super) content_index: Option<u64>,
    /// The index of the part in the item's summary.
    pub(super) summary_index: Option<u64>,
    /// A piece of text, of arguments or of a custom tool's input.
    #[serde(borrow)]
    pub(super) delta: Option<&'a RawValue>,
    /// A complete text.
    #[serde(borrow)]
    pub(super) text: Option<&'a RawValue>,
    /// A complete refusal.
    #[serde(borrow)]
    pub(super) refusal: Option<&'a RawValue>,
    /// The complete arguments of a call.
    #[serde(borrow)]
    pub(super) arguments: Option<&'a RawValue>,
    /// A part of an item.
    #[serde(borrow)]
    pub(super) part: Option<&'a RawValue>,
    /// An annotation, which names a source of the text.
    #[serde(borrow)]
    pub(super) annotation: Option<&'a RawValue>,
    /// An item.
    #[serde(borrow)]
    pub(super) item: Option<&'a RawValue>,
    /// The response object.
    #[serde(borrow)]
    pub(super) response: Option<&'a RawValue>,
    /// An error.
    #[serde(borrow)]
    pub(super) error: Option<&'a RawValue>,
}

/// The response object of an answer, from the last event or a body.
#[derive(Debug, Default, Deserialize)]
pub(super) struct ResponsesAnswer<'a> {
    /// The status, which says whether the answer is complete.
    pub(super) status: Option<String>,
    /// The error; `None` unless the answer has failed.
    #[serde(borrow)]
    pub(super) error: Option<&'a RawValue>,
    incomplete_details: Option<IncompleteDetails>,
    /// The items of the answer.
    #[serde(borrow)]
    pub(super) output: Option<Vec<&'a RawValue>>,
}

/// The explanation of why an answer is incomplete.
#[derive(Debug, Deserialize)]
struct IncompleteDetails {
    reason: Option<String>,
}

impl<'a> ResponsesAnswer<'a> {
    /// Parses a response object.
    ///
    /// # Errors
    /// The object does not conform to the protocol.
    pub(super) fn parse(json: &'a RawValue) -> Result<Self, AnswerFault> {
        serde_json::from_str(json.get()).map_err(|_| AnswerFault::Unreadable)
    }

    /// Creates an answer for which only these members have been read.
    pub(super) fn without_items(status: Option<String>, reason: Option<String>) -> Self {
        Self {
            status,
            incomplete_details: Some(IncompleteDetails { reason }),
            ..Self::default()
        }
    }

    /// Returns the reason why the answer is incomplete.
    pub(super) fn incomplete_reason(&self) -> Option<&str> {
        self.incomplete_details.as_ref()?.reason.as_deref()
    }
}

/// An item of an answer. Its type determines its members.
#[derive(Debug, Deserialize)]
pub(super) struct ResponsesItem<'a> {
    /// The type of the item.
    #[serde(rename = "type")]
    pub(super) kind: String,
    status: Option<String>,
    id: Option<String>,
    call_id: Option<String>,
    name: Option<String>,
    #[serde(borrow)]
    arguments: Option<&'a RawValue>,
    #[serde(borrow)]
    input: Option<&'a RawValue>,
    #[serde(borrow)]
    content: Option<&'a RawValue>,
    #[serde(borrow)]
    summary: Option<&'a RawValue>,
}

impl<'a> ResponsesItem<'a> {
    /// Parses an item.
    ///
    /// # Errors
    /// The item does not conform to the protocol.
    pub(super) fn parse(json: &'a RawValue) -> Result<Self, AnswerFault> {
        serde_json::from_str(json.get()).map_err(|_| AnswerFault::Unreadable)
    }

    /// Returns the id of the call, or an empty string.
    pub(super) fn call_id(&self) -> &str {
        self.call_id.as_deref().or(self.id.as_deref()).unwrap_or_default()
    }

    /// Returns the name of the tool that is called, or an empty string.
    pub(super) fn name(&self) -> &str {
        self.name.as_deref().unwrap_or_default()
    }

    /// Whether the item was interrupted.
    pub(super) fn is_incomplete(&self) -> bool {
        self.status.as_deref() == Some("incomplete")
    }

    /// Returns the complete arguments, as JSON text.
    ///
    /// # Errors
    /// The arguments cannot be read as a string.
    pub(super) fn arguments(&self) -> Result<Cow<'a, str>, AnswerFault> {
        match self.arguments {
            // Some hosts send the JSON itself instead of its text in a string.
            Some(json) if !json.get().starts_with('"') => Ok(Cow::Borrowed(json.get())),
            arguments => text(arguments),
        }
    }

    /// Returns the complete input of a custom tool, or an empty string.
    ///
    /// # Errors
    /// The input is not a string.
    pub(super) fn input(&self) -> Result<Cow<'a, str>, AnswerFault> {
        text(self.input)
    }

    /// Returns the parts of the item's content.
    ///
    /// # Errors
    /// The parts do not conform to the protocol.
    pub(super) fn content(&self) -> Result<Vec<ResponsesPart<'a>>, AnswerFault> {
        parts(self.content)
    }

    /// Returns the parts of the item's summary.
    ///
    /// # Errors
    /// The parts do not conform to the protocol.
    pub(super) fn summary(&self) -> Result<Vec<ResponsesPart<'a>>, AnswerFault> {
        parts(self.summary)
    }
}

/// The kind of a part with text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PartKind {
    /// Text of a message.
    Text,
    /// Text of a refusal.
    Refusal,
    /// A summary of reasoning.
    Summary,
    /// The reasoning itself.
    Reasoning,
}

/// A part of an item.
#[derive(Debug, Deserialize)]
pub(super) struct ResponsesPart<'a> {
    #[serde(rename = "type")]
    kind: Option<String>,
    text: Option<String>,
    refusal: Option<String>,
    #[serde(borrow)]
    annotations: Option<Vec<&'a RawValue>>,
}

impl<'a> ResponsesPart<'a> {
    /// Parses a part.
    ///
    /// # Errors
    /// The part does not conform to the protocol.
    pub(super) fn parse(json: &'a RawValue) -> Result<Self, AnswerFault> {
        serde_json::from_str(json.get()).map_err(|_| AnswerFault::Unreadable)
    }

    /// Returns the kind of the part; `None` if the part is not text.
    pub(super) fn kind(&self) -> Option<PartKind> {
        match self.kind.as_deref() {
            None | Some("output_text" | "text") => Some(PartKind::Text),
            Some("refusal") => Some(PartKind::Refusal),
            Some("summary_text") => Some(PartKind::Summary),
            Some("reasoning_text") => Some(PartKind::Reasoning),
            Some(_) => None,
        }
    }

    /// Returns the text of the part.
    pub(super) fn text(&self) -> Option<&str> {
        self.refusal.as_deref().or(self.text.as_deref())
    }

    /// Returns the sources of the part's text.
    pub(super) fn annotations(&self) -> &[&'a RawValue] {
        self.annotations.as_deref().unwrap_or_default()
    }
}

/// Returns the value of a string; an empty string if it is missing.
///
/// # Errors
/// The value is not a string.
pub(super) fn text(value: Option<&RawValue>) -> Result<Cow<'_, str>, AnswerFault> {
    match value {
        Some(value) => as_text(value).ok_or(AnswerFault::Unreadable),
        None => Ok(Cow::Borrowed("")),
    }
}

fn parts(value: Option<&RawValue>) -> Result<Vec<ResponsesPart<'_>>, AnswerFault> {
    match value {
        Some(value) => serde_json::from_str(value.get()).map_err(|_| AnswerFault::Unreadable),
        None => Ok(Vec::new()),
    }
}

/// An annotation, which names a source of the text.
#[derive(Debug, Deserialize)]
struct ResponsesAnnotation {
    url: Option<String>,
    title: Option<String>,
}

/// Returns the source that an annotation names. Only sources on the web have a URL, which other protocols require.
pub(super) fn citation(annotation: &RawValue) -> AnswerEvent<'static> {
    let annotation = serde_json::from_str::<ResponsesAnnotation>(annotation.get()).ok();
    let source =
        annotation.and_then(|annotation| Some((annotation.url.filter(|url| !url.is_empty())?, annotation.title)));
    match source {
        Some((url, title)) => AnswerEvent::Cited(Citation {
            url: Cow::Owned(url),
            title: title.map(Cow::Owned),
            quote: None,
        }),
        None => AnswerEvent::Lost(AnswerLosses::CITATION),
    }
}
