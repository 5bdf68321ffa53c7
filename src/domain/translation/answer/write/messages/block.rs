//! The content blocks and the events of an answer of Messages.

use std::borrow::Cow;

use crate::domain::{
    translation::{
        answer::{Citation, StopCause},
        conversation::ToolCall,
        json_out::{JsonObjectWriter, push_object},
    },
    wire::usage::Usage,
};

/// A content block. In a stream it keeps only what its end depends on.
#[derive(Debug)]
pub(super) enum MessageBlock {
    /// Text.
    Text {
        /// The text.
        text: String,
        /// Its sources, as JSON text.
        citations: Vec<String>,
    },
    /// Visible reasoning.
    Thinking {
        /// The text.
        text: String,
        /// The signature; empty while it is not known.
        signature: String,
    },
    /// Reasoning that the client does not see.
    Redacted {
        /// The carrier.
        data: String,
    },
    /// A call.
    Call {
        /// The call's number in the answer.
        slot: u32,
        /// The call, with the client's id and name.
        call: ToolCall<'static>,
        /// The arguments are an object, so a stream has each piece at once.
        is_passed_on: bool,
    },
}

impl MessageBlock {
    /// A text that has not begun.
    pub(super) const fn text() -> Self {
        Self::Text {
            text: String::new(),
            citations: Vec::new(),
        }
    }

    /// Visible reasoning that has not begun.
    pub(super) const fn thinking() -> Self {
        Self::Thinking {
            text: String::new(),
            signature: String::new(),
        }
    }

    /// A call without its arguments.
    pub(super) fn call(slot: u32, id: String, name: String) -> Self {
        Self::Call {
            slot,
            call: ToolCall {
                id: Cow::Owned(id),
                name: Cow::Owned(name),
                arguments: Cow::Borrowed(""),
            },
            is_passed_on: false,
        }
    }

    /// Writes the block as far as it is kept: with its content in a message, without it at its start in a stream.
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

/// The JSON text of a source. Sources without a quotation by the provider have an empty one, because clients require it.
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

/// Appends an event with the members that `fill` writes behind its type.
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

/// Writes the counts. The three counts of input do not overlap, and that of output includes reasoning.
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

/// The word for the end. An answer with calls ends with `tool_use`, and no other does, whatever the provider calls its end.
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
