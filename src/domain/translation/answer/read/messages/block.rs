//! The blocks of a Messages answer, as they begin in a stream or are in a body.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::domain::translation::answer::{AnswerEvent, Citation};

/// A block. Which members it has depends on its type.
#[derive(Debug, Deserialize)]
pub(super) struct MessagesAnswerBlock<'a> {
    /// Its type.
    #[serde(rename = "type")]
    pub(super) kind: String,
    /// The text.
    pub(super) text: Option<String>,
    /// The sources of the text.
    #[serde(borrow)]
    pub(super) citations: Option<&'a RawValue>,
    /// The text of thinking.
    pub(super) thinking: Option<String>,
    /// The signature of thinking.
    pub(super) signature: Option<String>,
    /// The content of redacted thinking.
    pub(super) data: Option<String>,
    /// The arguments of a call.
    #[serde(borrow)]
    pub(super) input: Option<&'a RawValue>,
    id: Option<String>,
    name: Option<String>,
}

impl MessagesAnswerBlock<'_> {
    /// The beginning of the call that the block is.
    pub(super) fn call(&self, slot: u32) -> AnswerEvent<'_> {
        AnswerEvent::Call {
            slot,
            id: Cow::Borrowed(self.id.as_deref().unwrap_or_default()),
            name: Cow::Borrowed(self.name.as_deref().unwrap_or_default()),
        }
    }

    /// What is lost with a block that no client's protocol has; `None` if it has no content.
    pub(super) fn lost_kind(&self) -> Option<&'static str> {
        match self.kind.as_str() {
            // Only says that another model goes on.
            "fallback" => None,
            "server_tool_use" | "mcp_tool_use" | "mcp_tool_listing" => Some("server_tool"),
            kind if kind.ends_with("_tool_result") => Some("server_tool"),
            "container_upload" => Some("container_upload"),
            "compaction" => Some("compaction"),
            _ => Some("content_block"),
        }
    }
}

/// A source of a text.
#[derive(Debug, Deserialize)]
struct MessagesSource {
    url: Option<String>,
    title: Option<String>,
    cited_text: Option<String>,
}

impl MessagesSource {
    /// Only sources on the web have an address that other protocols can name.
    fn into_event(self) -> AnswerEvent<'static> {
        match self.url.filter(|url| !url.is_empty()) {
            Some(url) => AnswerEvent::Cited(Citation {
                url: Cow::Owned(url),
                title: self.title.map(Cow::Owned),
                quote: self.cited_text.map(Cow::Owned),
            }),
            None => AnswerEvent::Lost("citation"),
        }
    }
}

/// The source that a citation names.
pub(super) fn citation(source: &RawValue) -> AnswerEvent<'static> {
    match serde_json::from_str::<MessagesSource>(source.get()) {
        Ok(source) => source.into_event(),
        Err(_) => AnswerEvent::Lost("citation"),
    }
}

/// The sources that a text's citations name.
pub(super) fn citations(sources: &RawValue) -> Vec<AnswerEvent<'static>> {
    match serde_json::from_str::<Vec<MessagesSource>>(sources.get()) {
        Ok(sources) => sources.into_iter().map(MessagesSource::into_event).collect(),
        Err(_) => vec![AnswerEvent::Lost("citation")],
    }
}
