//! The content blocks and the events of a Messages answer.

use std::borrow::Cow;

use crate::domain::{
    translation::{
        answer::{Citation, StopCause},
        conversation::ToolCall,
        json_out::{JsonObjectWriter, push_object},
    },
    wire::usage::Usage,
};

/// A content block. In a stream, the block retains only the data that is needed when it ends.
#[derive(Debug)]
pub(super) enum MessageBlock {
    /// Text.
    Text {
        /// The text.
        text: String,
        /// The sources of the text, as JSON text.
        citations: Vec<String>,
    },
    /// Visible reasoning.
    Thinking {
        /// The text.
        text: String,
        /// The signature; empty while it is unknown.
        signature: String,
    },
    /// Reasoning that the client does not see.
    Redacted {
        /// The carrier of the reasoning's state.
        data: String,
    },
    /// A call.
    Call {
        /// The index of the call in the answer.
        call_index: u32,
        /// The call, with the client's id and name.
        call: ToolCall<'static>,
        /// Whether the arguments are known to be an object. If so, a stream passes on each piece immediately.
        is_passed_on: bool,
    },
}

impl MessageBlock {
    /// Creates an empty text block.
    pub(super) const fn text() -> Self {
        Self::Text {
            text: String::new(),
            citations: Vec::new(),
        }
    }

    /// Creates an empty block of visible reasoning.
    pub(super) const fn thinking() -> Self {
        Self::Thinking {
            text: String::new(),
            signature: String::new(),
        }
    }

    /// Creates a call without arguments.
    pub(super) fn call(call_index: u32, id: String, name: String) -> Self {
        Self::Call {
            call_index,
            call: ToolCall {
                id: Cow::Owned(id),
                name: Cow::Owned(name),
                arguments: Cow::Borrowed(""),
            },
            is_passed_on: false,
        }
    }

    /// Writes the retained data of the block. In a non-streaming message, this includes the content; at the start of a block in a
    /// stream, there is no content yet.
    pub(super) fn write(&self, object: &mut JsonObjectWriter<'_>) {
        match self {
            Self::Text { text, citations } => {
                object.text("type", "text");
                object.text("text", text);
                if !citations.is_empty() {
                    object.array("citations", |list| {
                        citations.iter().for_each(|citation| list.raw(citation))
                    });
                }
            }
            Self::Thinking { text, signature } => {
                object.text("type", "thinking");
                object.text("thinking", text);
                object.text("signature", signature);
            }
            Self::Redacted { data } => {
                object.text("type", "redacted_thinking");
                object.text("data", data);
            }
            Self::Call { call, .. } => {
                object.text("type", "tool_use");
                object.text("id", &call.id);
                object.text("name", &call.name);
                object.raw("input", &call.object_arguments().0);
            }
        }
    }
}

/// Returns a source as JSON text. A source without a quotation gets an empty one, because clients require this member.
pub(super) fn citation_json(citation: &Citation<'_>) -> String {
    let mut json = String::new();
    push_object(&mut json, |object| {
        object.text("type", "web_search_result_location");
        object.text("cited_text", citation.quote.as_deref().unwrap_or_default());
        object.text("url", &citation.url);
        match &citation.title {
            Some(title) => object.text("title", title),
            None => object.null("title"),
        }
        object.text("encrypted_index", "");
    });
    json
}

/// Appends an event with its type and the members that `fill` writes.
pub(super) fn push_event(out: &mut String, kind: &str, fill: impl FnOnce(&mut JsonObjectWriter<'_>)) {
    out.push_str("event: ");
    out.push_str(kind);
    out.push_str("\ndata: ");
    push_object(out, |event| {
        event.text("type", kind);
        fill(event);
    });
    out.push_str("\n\n");
}

/// Writes the token counts. The three input counts do not overlap, and the output count includes reasoning.
pub(super) fn write_usage(counts: &mut JsonObjectWriter<'_>, usage: &Usage) {
    let read = usage.cache_read_total();
    let written = usage.cache_write_short.saturating_add(usage.cache_write_long);
    let fresh = usage.input_total().saturating_sub(read).saturating_sub(written);
    counts.number("input_tokens", fresh);
    counts.number("cache_creation_input_tokens", written);
    counts.number("cache_read_input_tokens", read);
    counts.number("output_tokens", usage.output_total());
    counts.object("output_tokens_details", |details| {
        details.number("thinking_tokens", usage.output_reasoning);
    });
}

/// Returns the stop reason. If the model finished the answer, the reason depends on the answer's content, not on the provider's
/// reason: `tool_use` if the answer has calls, otherwise `refusal` or `end_turn`.
pub(super) const fn stop_reason(stop: StopCause, calls: u32, has_refused: bool) -> &'static str {
    match stop {
        StopCause::End | StopCause::Calls => match (calls, has_refused) {
            (1.., _) => "tool_use",
            (0, true) => "refusal",
            (0, false) => "end_turn",
        },
        StopCause::Sequence => "stop_sequence",
        StopCause::MaxTokens => "max_tokens",
        StopCause::ContextFull => "model_context_window_exceeded",
        StopCause::Refused | StopCause::Filtered => "refusal",
        StopCause::Malformed => "end_turn",
    }
}
