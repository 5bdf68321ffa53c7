//! The types for parsing events and bodies of Gemini-style answers.

use std::borrow::Cow;

use serde::{Deserialize, de::IgnoredAny};
use serde_json::value::RawValue;

use crate::domain::translation::{answer::Citation, members::as_text};

/// An event of a stream, or the body of a non-streaming answer.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct GeminiChunk<'a> {
    /// The alternative answers; weir requests only one.
    #[serde(borrow)]
    pub(super) candidates: Option<Vec<GeminiCandidate<'a>>>,
    #[serde(borrow)]
    prompt_feedback: Option<PromptFeedback<'a>>,
    /// The error; `None` unless the answer has failed.
    #[serde(borrow)]
    pub(super) error: Option<&'a RawValue>,
}

/// The provider's feedback on the prompt.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PromptFeedback<'a> {
    #[serde(borrow)]
    block_reason: Option<&'a RawValue>,
}

impl GeminiChunk<'_> {
    /// Whether the provider has blocked the prompt and sends no answer to it.
    pub(super) fn is_blocked(&self) -> bool {
        let reason = self.prompt_feedback.as_ref().and_then(|feedback| feedback.block_reason);
        word(reason).is_some()
    }
}

/// One of the alternative answers.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct GeminiCandidate<'a> {
    /// The index of this candidate.
    pub(super) index: Option<u64>,
    #[serde(borrow)]
    content: Option<GeminiAnswerContent<'a>>,
    #[serde(borrow)]
    finish_reason: Option<&'a RawValue>,
    #[serde(borrow)]
    grounding_metadata: Option<&'a RawValue>,
}

/// The content of a candidate.
#[derive(Debug, Deserialize)]
struct GeminiAnswerContent<'a> {
    #[serde(borrow)]
    parts: Option<Vec<GeminiAnswerPart<'a>>>,
}

impl<'a> GeminiCandidate<'a> {
    /// Returns the parts of the candidate's content.
    pub(super) fn parts(&self) -> &[GeminiAnswerPart<'a>] {
        let parts = self.content.as_ref().and_then(|content| content.parts.as_deref());
        parts.unwrap_or_default()
    }

    /// Whether the candidate has text or a call.
    pub(super) fn has_content(&self) -> bool {
        let has_text = |part: &GeminiAnswerPart<'_>| part.text.as_ref().is_some_and(|text| !text.trim().is_empty());
        self.parts()
            .iter()
            .any(|part| part.function_call.is_some() || has_text(part))
    }

    /// Returns the reason why the candidate ended. Only the last chunk of a candidate contains this reason.
    pub(super) fn finish_reason(&self) -> Option<Cow<'a, str>> {
        word(self.finish_reason)
    }

    /// Returns the sources so far, with `None` for each source that has no URL.
    pub(super) fn sources(&self) -> Vec<Option<Citation<'static>>> {
        let metadata = self
            .grounding_metadata
            .map(|metadata| serde_json::from_str::<GroundingMetadata>(metadata.get()));
        match metadata {
            None => Vec::new(),
            Some(Ok(metadata)) => {
                let chunks = metadata.grounding_chunks.unwrap_or_default();
                chunks.into_iter().map(GroundingChunk::into_citation).collect()
            }
            Some(Err(_)) => vec![None],
        }
    }
}

/// Returns a finish reason or a block reason; `None` if it is missing or unspecified.
fn word(reason: Option<&RawValue>) -> Option<Cow<'_, str>> {
    as_text(reason?).filter(|reason| !reason.is_empty() && !reason.ends_with("_UNSPECIFIED"))
}

/// A part of the content.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct GeminiAnswerPart<'a> {
    /// The text.
    pub(super) text: Option<String>,
    /// Whether the text is reasoning.
    pub(super) thought: Option<bool>,
    /// The opaque state of the reasoning before the part.
    pub(super) thought_signature: Option<String>,
    /// A call, or a piece of it.
    #[serde(borrow)]
    pub(super) function_call: Option<GeminiCallPiece<'a>>,
    inline_data: Option<IgnoredAny>,
    file_data: Option<IgnoredAny>,
    executable_code: Option<IgnoredAny>,
    code_execution_result: Option<IgnoredAny>,
    tool_call: Option<IgnoredAny>,
    tool_response: Option<IgnoredAny>,
    function_response: Option<IgnoredAny>,
}

impl GeminiAnswerPart<'_> {
    /// Returns the kind of the part's content if no client's protocol can carry it, otherwise `None`.
    pub(super) fn lost_kind(&self) -> Option<&'static str> {
        let kinds = [
            (self.inline_data.is_some(), "inline_data"),
            (self.file_data.is_some(), "file_data"),
            (self.executable_code.is_some(), "executable_code"),
            (self.code_execution_result.is_some(), "code_execution_result"),
            (self.tool_call.is_some(), "server_tool"),
            (self.tool_response.is_some(), "server_tool"),
            (self.function_response.is_some(), "function_response"),
        ];
        kinds.into_iter().find_map(|(is_there, kind)| is_there.then_some(kind))
    }
}

/// A call, or a piece of it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct GeminiCallPiece<'a> {
    /// The id of the call; only some hosts send it.
    pub(super) id: Option<String>,
    /// The tool's name; only in the first piece.
    pub(super) name: Option<String>,
    /// The complete arguments.
    #[serde(borrow)]
    pub(super) args: Option<&'a RawValue>,
    /// Pieces of arguments.
    #[serde(borrow)]
    pub(super) partial_args: Option<Vec<GeminiPartialArgument<'a>>>,
    /// Whether the next part is another piece of this call.
    pub(super) will_continue: Option<bool>,
}

/// A piece of an argument.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct GeminiPartialArgument<'a> {
    /// The path of the value within the arguments, as a JSONPath expression.
    pub(super) json_path: String,
    /// A piece of a string.
    pub(super) string_value: Option<String>,
    /// A number.
    #[serde(borrow)]
    pub(super) number_value: Option<&'a RawValue>,
    /// A boolean.
    #[serde(borrow)]
    pub(super) bool_value: Option<&'a RawValue>,
}

/// The sources of an answer.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct GroundingMetadata {
    grounding_chunks: Option<Vec<GroundingChunk>>,
}

/// One source.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct GroundingChunk {
    web: Option<GroundingSource>,
    retrieved_context: Option<GroundingSource>,
    maps: Option<GroundingSource>,
}

/// The URL and the title of a source.
#[derive(Debug, Deserialize)]
struct GroundingSource {
    uri: Option<String>,
    title: Option<String>,
}

impl GroundingChunk {
    fn into_citation(self) -> Option<Citation<'static>> {
        let source = self.web.or(self.retrieved_context).or(self.maps)?;
        Some(Citation {
            url: Cow::Owned(source.uri.filter(|uri| !uri.is_empty())?),
            title: source.title.map(Cow::Owned),
            quote: None,
        })
    }
}
